package protocol

import (
	"maps"
	"time"

	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"

	"toolledger/internal/schema"
)

// Link says what a compensating call does to the call that it undoes.
type Link struct {
	Original *schema.Row
	By       schema.Undoer // the compensating call
	Begin    bool          // reserve: link the original to By
	End      bool          // finalize: the original is compensated
	Refund   bool          // End: the original's debits are given back and cleared
}

// Compensate is the original's part of a compensating call. Linking begins at the reserve, so that no two keys can both
// undo one call; a link that is there already is only checked, since the retry of the same key may go on.
func (t Tables) Compensate(l Link, now time.Time) types.TransactWriteItem {
	mine := "#compensatedBy = :by"
	guards := schema.Item{":guardState": valueApplied, ":guardRow": schema.S(l.Original.RowID), ":by": schema.S(l.By.By)}
	if l.By.In != "" {
		mine = "(" + mine + " AND #compensatedIn = :in)"
		guards[":in"] = schema.S(l.By.In)
	}
	cond := "#state = :guardState AND #rowId = :guardRow AND attribute_not_exists(#compensatedAt) AND "
	if !l.Begin {
		cond += mine
	} else {
		cond += "(attribute_not_exists(#compensatedBy) OR " + mine + ")"
	}
	if l.Begin && !l.End && l.Original.Undoer() == l.By {
		return newFixed(cond, "").check(t.Ledger, l.Original.Key, guards)
	}
	c := newChange().put(schema.AUpdatedAt, schema.Millis(now))
	maps.Copy(c.values, guards)
	if l.Begin {
		c.set.item("#compensatedBy = :by")
	}
	if l.Begin && l.By.In != "" {
		c.set.item("#compensatedIn = :in")
	}
	if l.End {
		c.put(schema.ACompensatedAt, schema.Millis(now))
		if l.Refund {
			c.drop(schema.ADebits)
		}
	}
	return c.item(t.Ledger, l.Original.Key, cond)
}
