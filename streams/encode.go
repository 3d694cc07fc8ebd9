package streams

import (
	"encoding/json"

	streamtypes "github.com/aws/aws-sdk-go-v2/service/dynamodbstreams/types"
)

// lambdaJSON is the record in the form in which Lambda delivers it, also where a client of DynamoDB Streams read it: so that
// what is kept of either has one form.
func (c *Change) lambdaJSON() []byte {
	if c.text != "" {
		return []byte(c.text)
	}
	record := map[string]any{"eventName": c.Op, "eventSource": "aws:dynamodb", "eventSourceARN": c.Stream}
	content := map[string]any{"SequenceNumber": c.Sequence}
	if !c.Time.IsZero() {
		content["ApproximateCreationDateTime"] = c.Time.Unix()
	}
	if c.TTL {
		record["userIdentity"] = map[string]string{"type": ttlType, "principalId": ttlPrincipal}
	}
	if r := c.record; r != nil {
		if r.EventID != nil {
			record["eventID"] = *r.EventID
		}
		if d := r.Dynamodb; d != nil {
			content["Keys"] = jsonItem(d.Keys)
			if d.NewImage != nil {
				content["NewImage"] = jsonItem(d.NewImage)
			}
			if d.OldImage != nil {
				content["OldImage"] = jsonItem(d.OldImage)
			}
		}
	}
	record["dynamodb"] = content
	b, err := json.Marshal(record)
	if err != nil {
		return nil
	}
	return b
}

func jsonItem(item map[string]streamtypes.AttributeValue) map[string]any {
	m := make(map[string]any, len(item))
	for name, av := range item {
		m[name] = jsonValue(av)
	}
	return m
}

func jsonValue(av streamtypes.AttributeValue) any {
	switch v := av.(type) {
	case *streamtypes.AttributeValueMemberS:
		return map[string]any{"S": v.Value}
	case *streamtypes.AttributeValueMemberN:
		return map[string]any{"N": v.Value}
	case *streamtypes.AttributeValueMemberB:
		return map[string]any{"B": v.Value}
	case *streamtypes.AttributeValueMemberBOOL:
		return map[string]any{"BOOL": v.Value}
	case *streamtypes.AttributeValueMemberNULL:
		return map[string]any{"NULL": v.Value}
	case *streamtypes.AttributeValueMemberSS:
		return map[string]any{"SS": v.Value}
	case *streamtypes.AttributeValueMemberNS:
		return map[string]any{"NS": v.Value}
	case *streamtypes.AttributeValueMemberBS:
		return map[string]any{"BS": v.Value}
	case *streamtypes.AttributeValueMemberM:
		return map[string]any{"M": jsonItem(v.Value)}
	case *streamtypes.AttributeValueMemberL:
		list := make([]any, len(v.Value))
		for i, e := range v.Value {
			list[i] = jsonValue(e)
		}
		return map[string]any{"L": list}
	}
	return map[string]any{}
}
