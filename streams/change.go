package streams

import (
	"encoding/base64"
	"slices"
	"strconv"
	"strings"
	"time"

	dynamodbtypes "github.com/aws/aws-sdk-go-v2/service/dynamodb/types"
	streamtypes "github.com/aws/aws-sdk-go-v2/service/dynamodbstreams/types"

	"toolledger/internal/schema"
)

// The operations of a stream record.
const (
	OpInsert = "INSERT"
	OpModify = "MODIFY"
	OpRemove = "REMOVE"
)

// Change is one stream record: what an item was before and after one write. Nothing in it is trusted.
type Change struct {
	Op       string // OpInsert, OpModify, OpRemove
	Keys     schema.Key
	Old, New Image     // nil: the record has none
	Sequence string    // decimal, of differing length: compare as integers
	Time     time.Time // to the second, by DynamoDB's clock; zero where the record has none
	TTL      bool      // DynamoDB itself removed the item, because its time to live had passed
	Stream   string    // ARN of the stream
	Err      error     // why the record could not be decoded; only Sequence, Keys and Stream may be set then

	record *streamtypes.Record // the record as a client read it
	text   string              // the record as Lambda delivered it
}

// Attr is one attribute of an item.
type Attr = schema.Attr

// Image is an item as a stream record shows it. nil means that the record has none; an item without attributes is not nil.
type Image = schema.Image

// sameImage tells whether two images hold the same attributes, in whatever order.
func sameImage(im, other Image) bool {
	if len(im) != len(other) {
		return false
	}
	byName := make(map[string]*schema.Value, len(im))
	for i := range im {
		byName[im[i].Name] = &im[i].Value
	}
	for i := range other {
		v, ok := byName[other[i].Name]
		if !ok || !equalValues(v, &other[i].Value) {
			return false
		}
	}
	return true
}

func equalValues(a, b *schema.Value) bool {
	if a.Type != b.Type || a.Text != b.Text || a.Bool != b.Bool || !slices.Equal(a.Data, b.Data) || len(a.Map) != len(b.Map) {
		return false
	}
	for name, inner := range a.Map {
		other, ok := b.Map[name]
		if !ok || !equalValues(&inner, &other) {
			return false
		}
	}
	return sameSet(a.Set, b.Set)
}

// sameSet compares sets; DynamoDB keeps no order in them.
func sameSet(a, b []string) bool {
	if len(a) != len(b) || slices.Equal(a, b) {
		return len(a) == len(b)
	}
	a, b = slices.Sorted(slices.Values(a)), slices.Sorted(slices.Values(b))
	return slices.Equal(a, b)
}

// ImageOf makes an image of an item that a DynamoDB client returned; nil stays nil.
func ImageOf(item map[string]dynamodbtypes.AttributeValue) Image {
	if item == nil {
		return nil
	}
	im := make(Image, 0, len(item))
	for name, av := range item {
		im = append(im, Attr{Name: name, Value: schema.ValueOf(av)})
	}
	return im
}

// ChangeOf makes a Change of a record that a DynamoDB Streams client returned; stream is the stream's ARN. A record
// without content comes with Err set.
func ChangeOf(stream string, r *streamtypes.Record) Change {
	c := Change{Op: string(r.EventName), Stream: stream, record: r}
	if id := r.UserIdentity; id != nil {
		c.TTL = id.Type != nil && *id.Type == ttlType && id.PrincipalId != nil && *id.PrincipalId == ttlPrincipal
	}
	d := r.Dynamodb
	if d == nil {
		c.Err = &UnreadableError{Rule: "the record has no content"}
		return c
	}
	if d.SequenceNumber != nil {
		c.Sequence = *d.SequenceNumber
	}
	if d.ApproximateCreationDateTime != nil {
		c.Time = d.ApproximateCreationDateTime.UTC()
	}
	c.Keys = schema.Key{PK: stringOf(d.Keys[schema.PK]), SK: stringOf(d.Keys[schema.SK])}
	c.Old, c.New = streamImage(d.OldImage), streamImage(d.NewImage)
	return c
}

// A removal by time to live is told by who did it. Streams of global tables show that in the removing Region only.
const (
	ttlType      = "Service"
	ttlPrincipal = "dynamodb.amazonaws.com"
)

func stringOf(av streamtypes.AttributeValue) string {
	if s, ok := av.(*streamtypes.AttributeValueMemberS); ok {
		return s.Value
	}
	return ""
}

func streamImage(item map[string]streamtypes.AttributeValue) Image {
	if item == nil {
		return nil
	}
	im := make(Image, 0, len(item))
	for name, av := range item {
		im = append(im, Attr{Name: name, Value: streamValue(av)})
	}
	return im
}

// streamValue turns a value of the Streams client, whose types are not those of the DynamoDB client, into a schema.Value.
// What no item of ours holds becomes TypeOther with a text that differs where the values do.
func streamValue(av streamtypes.AttributeValue) schema.Value {
	switch v := av.(type) {
	case *streamtypes.AttributeValueMemberS:
		return schema.Value{Type: schema.TypeString, Text: v.Value}
	case *streamtypes.AttributeValueMemberN:
		return schema.Value{Type: schema.TypeNumber, Text: v.Value}
	case *streamtypes.AttributeValueMemberB:
		return schema.Value{Type: schema.TypeBinary, Data: v.Value}
	case *streamtypes.AttributeValueMemberBOOL:
		return schema.Value{Type: schema.TypeBool, Bool: v.Value}
	case *streamtypes.AttributeValueMemberSS:
		return schema.Value{Type: schema.TypeStringSet, Set: v.Value}
	case *streamtypes.AttributeValueMemberM:
		m := make(map[string]schema.Value, len(v.Value))
		for name, inner := range v.Value {
			m[name] = streamValue(inner)
		}
		return schema.Value{Type: schema.TypeMap, Map: m}
	case *streamtypes.AttributeValueMemberNS:
		return otherSet("NS", v.Value)
	case *streamtypes.AttributeValueMemberBS:
		texts := make([]string, len(v.Value))
		for i, b := range v.Value {
			texts[i] = base64.StdEncoding.EncodeToString(b)
		}
		return otherSet("BS", texts)
	case *streamtypes.AttributeValueMemberL:
		inner := make(map[string]schema.Value, len(v.Value))
		for i, e := range v.Value {
			inner[strconv.Itoa(i)] = streamValue(e)
		}
		return schema.Value{Text: "L", Map: inner}
	case *streamtypes.AttributeValueMemberNULL:
		return schema.Value{Text: "NULL"}
	}
	return schema.Value{}
}

func otherSet(tag string, texts []string) schema.Value {
	return schema.Value{Text: tag, Set: slices.Clone(texts)}
}

// compareSequence compares sequence numbers: decimal strings of differing length. What is no number sorts first.
func compareSequence(a, b string) int {
	a, b = strings.TrimLeft(a, "0"), strings.TrimLeft(b, "0")
	if len(a) != len(b) {
		return len(a) - len(b)
	}
	return strings.Compare(a, b)
}
