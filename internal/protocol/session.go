package protocol

import (
	"time"

	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"

	"toolledger/internal/schema"
)

const setCursor = "SET #cursor = :cursor, #format = :format, #updatedAt = :now, #expiresAt = :expires, " +
	"#version = if_not_exists(#version, :zero) + :one"

var (
	exprCursorIs   = newFixed("#cursor = :expect", "")
	exprCursorNone = newFixed("attribute_not_exists(#cursor)", "")
	exprMove       = newFixed("", setCursor)
	exprMoveFrom   = newFixed("#cursor = :expect", setCursor)
	exprMoveFirst  = newFixed("attribute_not_exists(#cursor)", setCursor)
)

// CheckCursor makes a reservation hold only while the session is where the call expects it; "" means nowhere yet.
func (t Tables) CheckCursor(key schema.Key, expect string) types.TransactWriteItem {
	if expect == "" {
		return exprCursorNone.check(t.Ledger, key, nil)
	}
	return exprCursorIs.check(t.Ledger, key, schema.Item{":expect": schema.S(expect)})
}

// MoveCursor moves the session's cursor, from the expected one where one is given.
func (t Tables) MoveCursor(key schema.Key, cursor string, expect *string, now, expires time.Time) types.TransactWriteItem {
	values := schema.Item{
		":cursor": schema.S(cursor), ":format": schema.N(schema.Format), ":now": schema.Millis(now),
		":expires": schema.Seconds(expires), ":zero": schema.N(0), ":one": valueOne,
	}
	switch {
	case expect == nil:
		return exprMove.updateItem(t.Ledger, key, values)
	case *expect == "":
		return exprMoveFirst.updateItem(t.Ledger, key, values)
	}
	values[":expect"] = schema.S(*expect)
	return exprMoveFrom.updateItem(t.Ledger, key, values)
}
