package protocol

import (
	"strings"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"

	"toolledger/internal/schema"
)

// aliases maps every "#name" in the expressions to its attribute: DynamoDB refuses unused and missing ones alike, so the
// map is made from the expressions themselves.
func aliases(expressions ...string) map[string]string {
	n := 0
	for _, e := range expressions {
		n += strings.Count(e, "#")
	}
	names := make(map[string]string, n)
	for _, e := range expressions {
		for {
			i := strings.IndexByte(e, '#')
			if i < 0 {
				break
			}
			e = e[i:]
			n := 1
			for n < len(e) && (e[n] >= 'a' && e[n] <= 'z' || e[n] >= 'A' && e[n] <= 'Z') {
				n++
			}
			names[e[:n]] = e[1:n]
			e = e[n:]
		}
	}
	return names
}

// fixed is an expression that is the same on every call; its strings and names are made once and only read.
type fixed struct {
	condition *string
	update    *string
	names     map[string]string
}

func newFixed(condition, update string) fixed {
	f := fixed{names: aliases(condition, update)}
	if condition != "" {
		f.condition = aws.String(condition)
	}
	if update != "" {
		f.update = aws.String(update)
	}
	return f
}

func (f fixed) updateItem(table string, key schema.Key, values schema.Item) types.TransactWriteItem {
	return types.TransactWriteItem{Update: &types.Update{
		TableName: &table, Key: key.Item(), ConditionExpression: f.condition, UpdateExpression: f.update,
		ExpressionAttributeNames: f.names, ExpressionAttributeValues: values,
		ReturnValuesOnConditionCheckFailure: types.ReturnValuesOnConditionCheckFailureAllOld,
	}}
}

func (f fixed) check(table string, key schema.Key, values schema.Item) types.TransactWriteItem {
	return types.TransactWriteItem{ConditionCheck: &types.ConditionCheck{
		TableName: &table, Key: key.Item(), ConditionExpression: f.condition,
		ExpressionAttributeNames: f.names, ExpressionAttributeValues: values,
		ReturnValuesOnConditionCheckFailure: types.ReturnValuesOnConditionCheckFailureAllOld,
	}}
}

func (f fixed) put(table string, item, values schema.Item) types.TransactWriteItem {
	return types.TransactWriteItem{Put: &types.Put{
		TableName: &table, Item: item, ConditionExpression: f.condition,
		ExpressionAttributeNames: f.names, ExpressionAttributeValues: values,
		ReturnValuesOnConditionCheckFailure: types.ReturnValuesOnConditionCheckFailureAllOld,
	}}
}

// change is an update expression whose parts depend on the call.
type change struct {
	set, remove, add clause
	values           schema.Item
}

// clause is the text of one part, without its keyword.
type clause []byte

// item appends one item of the list, given in pieces.
func (c *clause) item(pieces ...string) {
	if len(*c) > 0 {
		*c = append(*c, ", "...)
	}
	for _, p := range pieces {
		*c = append(*c, p...)
	}
}

// newChange begins with what every update does: the version is raised in the expression.
func newChange() *change {
	c := &change{set: make(clause, 0, 256), values: make(schema.Item, 14)} // enough for a finalize
	c.set.item("#version = #version + :one")
	c.values[":one"] = valueOne
	return c
}

// put sets an attribute.
func (c *change) put(attr string, v types.AttributeValue) *change {
	c.set.item("#", attr, " = :", attr)
	c.values[":"+attr] = v
	return c
}

// putOr sets an attribute to v, or removes it where the zero value means that it is not stored.
func (c *change) putOr(attr string, stored bool, v types.AttributeValue) *change {
	if stored {
		return c.put(attr, v)
	}
	return c.drop(attr)
}

func (c *change) copy(attr, from string) *change {
	c.set.item("#", attr, " = #", from)
	return c
}

func (c *change) drop(attrs ...string) *change {
	for _, a := range attrs {
		c.remove.item("#", a)
	}
	return c
}

func (c *change) addTo(attr string, v types.AttributeValue) *change {
	c.add.item("#", attr, " :", attr)
	c.values[":"+attr] = v
	return c
}

func (c *change) expression() string {
	e := "SET " + string(c.set)
	if len(c.remove) > 0 {
		e += " REMOVE " + string(c.remove)
	}
	if len(c.add) > 0 {
		e += " ADD " + string(c.add)
	}
	return e
}

func (c *change) item(table string, key schema.Key, condition string) types.TransactWriteItem {
	return newFixed(condition, c.expression()).updateItem(table, key, c.values)
}
