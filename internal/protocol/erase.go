package protocol

import (
	"time"

	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"

	"toolledger/internal/schema"
)

// MarkErasing is the first half of removing an ended row: the row as it was read is the condition, so that a takeover, a
// suspect or a settlement in between keeps it. The mark is what tells the stream's readers that the removal which follows
// is meant. Whether the row may be erased at all is for the caller to know.
func (t Tables) MarkErasing(r *schema.Row, by, why string, now time.Time) types.TransactWriteItem {
	c := newChange().put(schema.AErasing, schema.Bool(true)).put(schema.AUpdatedAt, schema.Millis(now))
	if by != "" {
		c.put(schema.ABy, schema.S(by))
	}
	if why != "" {
		c.put(schema.AWhy, schema.S(why))
	}
	return c.item(t.Ledger, r.Key, AsRead(r).condition(c))
}

var exprDeleteRow = newFixed("#rowId = :r AND #version = :v AND #state IN (:applied, :failed)", "")

// DeleteRow removes an ended row of which version is all that is there: the marked one, or the last of a row that has
// outlived its retention.
func (t Tables) DeleteRow(key schema.Key, rowID string, version int64) types.TransactWriteItem {
	return exprDeleteRow.remove(t.Ledger, key, schema.Item{
		":r": schema.S(rowID), ":v": schema.N(version), ":applied": valueApplied, ":failed": valueFailed,
	})
}

// DeletePlan removes a plan that has not changed since it was read.
func (t Tables) DeletePlan(key schema.Key, version int64) types.TransactWriteItem {
	return exprPlanVersion.remove(t.Control, key, schema.Item{":v": schema.N(version)})
}

// DeleteItem removes an item of the ledger table that is no row, whatever it holds.
func (t Tables) DeleteItem(key schema.Key) types.TransactWriteItem { return remove(t.Ledger, key) }

// DeleteGrant removes the record of a grant.
func (t Tables) DeleteGrant(key schema.Key) types.TransactWriteItem { return remove(t.Control, key) }

func remove(table string, key schema.Key) types.TransactWriteItem {
	return types.TransactWriteItem{Delete: &types.Delete{TableName: &table, Key: key.Item()}}
}

func (f fixed) remove(table string, key schema.Key, values schema.Item) types.TransactWriteItem {
	return types.TransactWriteItem{Delete: &types.Delete{
		TableName: &table, Key: key.Item(), ConditionExpression: f.condition,
		ExpressionAttributeNames: f.names, ExpressionAttributeValues: values,
		ReturnValuesOnConditionCheckFailure: types.ReturnValuesOnConditionCheckFailureAllOld,
	}}
}
