package protocol

import (
	"time"

	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"

	"toolledger/internal/schema"
)

// Link says what a compensating call does to the call that it undoes.
type Link struct {
	Original *schema.Row
	By       string // scope and key of the compensating call
	Begin    bool   // reserve: link the original to By
	End      bool   // finalize: the original is compensated
	Refund   bool   // End: the original's debits are given back and cleared
}

// Compensate is the original's part of a compensating call. Linking begins at the reserve, so that no two keys can both
// undo one call; a link that is there already is only checked, since the retry of the same key may go on.
func (t Tables) Compensate(l Link, now time.Time) types.TransactWriteItem {
	c := newChange().put(schema.AUpdatedAt, schema.Millis(now))
	cond := "#state = :guardState AND #rowId = :guardRow AND attribute_not_exists(#compensatedAt)"
	c.values[":guardState"], c.values[":guardRow"] = valueApplied, schema.S(l.Original.RowID)
	by := schema.S(l.By)
	if l.Begin {
		cond += " AND (attribute_not_exists(#compensatedBy) OR #compensatedBy = :by)"
		if !l.End && l.Original.CompensatedBy == l.By {
			return newFixed(cond, "").check(t.Ledger, l.Original.Key, schema.Item{
				":guardState": valueApplied, ":guardRow": c.values[":guardRow"], ":by": by,
			})
		}
		c.set.item("#compensatedBy = :by")
	} else {
		cond += " AND #compensatedBy = :by"
	}
	c.values[":by"] = by
	if l.End {
		c.put(schema.ACompensatedAt, schema.Millis(now))
		if l.Refund {
			c.drop(schema.ADebits)
		}
	}
	return c.item(t.Ledger, l.Original.Key, cond)
}
