package protocol

import (
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"

	"toolledger/internal/schema"
)

// Tables names the two tables.
type Tables struct{ Ledger, Control string }

// Kind says what an item of a transaction stands for.
type Kind int

// The kinds of parts.
const (
	PartRow Kind = iota
	PartQuota
	PartSession
	PartOriginal // the call that this one compensates
	PartWrite    // the tool's own
	PartPlan
	PartGrant
)

// Part says what one item of a transaction is for, so that a refusal can be told by index.
type Part struct {
	Kind  Kind
	Index int        // PartWrite: which of the tool's writes
	Key   schema.Key // PartQuota: the quota item
}

// Tx is a transaction with the meaning of each of its items.
type Tx struct {
	Items []types.TransactWriteItem
	Parts []Part
}

// NewTx returns an empty transaction with room for n items.
func NewTx(n int) *Tx {
	return &Tx{Items: make([]types.TransactWriteItem, 0, n), Parts: make([]Part, 0, n)}
}

// Add appends an item.
func (t *Tx) Add(p Part, item types.TransactWriteItem) {
	t.Items, t.Parts = append(t.Items, item), append(t.Parts, p)
}

// MaxItems is the most items that one transaction may hold (DynamoDB's own limit).
const MaxItems = 100
