package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"

	"toolledger/writers"
)

// story makes some calls, hands their events to the view twice, and shows it.
func story(ctx context.Context, v *view, ledgerTable, file string, out io.Writer) error {
	v.table = cmp.Or(v.table, "subscriber-view")
	_, err := v.db.CreateTable(ctx, &dynamodb.CreateTableInput{
		TableName: &v.table, BillingMode: types.BillingModePayPerRequest,
		AttributeDefinitions: []types.AttributeDefinition{{AttributeName: new("row"), AttributeType: types.ScalarAttributeTypeS}},
		KeySchema:            []types.KeySchemaElement{{AttributeName: new("row"), KeyType: types.KeyTypeHash}},
	})
	if _, there := errors.AsType[*types.ResourceInUseException](err); err != nil && !there {
		return err
	}
	l, err := writers.New(v.db, writers.Config{Table: cmp.Or(ledgerTable, "toolledger")})
	if err != nil {
		return err
	}
	if err := calls(ctx, l.Tenant("acme").Session(fmt.Sprintf("story-%d", v.now().UnixMilli()))); err != nil {
		return err
	}
	if file == "" {
		return errNoEvents
	}
	time.Sleep(2 * time.Second) // until the events are out
	if err := replay(ctx, v, file); err != nil {
		return err
	}
	return show(ctx, v, out)
}

var errNoEvents = errors.New("TOOLLEDGER_EVENTS names no file; run examples/run.sh subscriber")

// calls are three calls that take effect, and one that is given back.
func calls(ctx context.Context, s writers.Session) error {
	for n := range 3 {
		c := writers.Call{Key: writers.SessionKey(fmt.Sprintf("commit-%d", n)), Tool: "book_room", Tokens: 5}
		if _, err := s.Commit(ctx, c, n); err != nil {
			return err
		}
	}
	hold, _, err := s.Reserve(ctx, writers.Call{Key: writers.SessionKey("reserve"), Tool: "send_mail", Tokens: 9})
	if err != nil {
		return err
	}
	return hold.Release(ctx, "no such address")
}
