package main

import (
	"bufio"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"sync"
	"time"

	"github.com/aws/aws-sdk-go-v2/config"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"

	"toolledger/writers"
)

const usersTable = "saveuser-users"

// rough is a network on which every second request meets trouble.
func rough(n int64) trouble {
	return []trouble{fine, answerLost, fine, overloaded, fine, lost}[n%6]
}

// story lets two agents want the same user at once, over a network that loses things: one over HTTP, one over Lambda
// Invoke, and the first of them dies on the way.
func story(ctx context.Context, out io.Writer) error {
	cfg, err := config.LoadDefaultConfig(ctx)
	if err != nil {
		return err
	}
	db := dynamodb.NewFromConfig(cfg)
	ledger, err := writers.New(db, writers.Config{Table: cmp.Or(os.Getenv("LEDGER_TABLE"), "toolledger")})
	if err != nil {
		return err
	}
	if err := createUsers(ctx, db, usersTable); err != nil {
		return err
	}
	l, err := openLocal(&handler{ledger, usersTable}, map[string]string{"token-of-acme": "acme"}, rough)
	if err != nil {
		return err
	}
	defer l.close()
	id := fmt.Sprintf("ann-%d", time.Now().Unix()%100_000)
	agents := map[string]Way{
		"over-http":   viaHTTP(&http.Client{Timeout: 10 * time.Second}, l.url+"/users", "token-of-acme"),
		"over-lambda": viaLambda(cfg, l.url, "saveuser", "acme"),
	}
	var wg sync.WaitGroup
	var mu sync.Mutex
	var failed error
	for name, way := range agents {
		wg.Go(func() {
			m, err := live(ctx, way, Memory{Session: id + "-" + name}, User{UserID: id, Name: name})
			mu.Lock()
			defer mu.Unlock()
			failed = errors.Join(failed, err)
			for _, s := range m.Steps {
				fmt.Fprintf(out, "%-12s %s wants %-14s → %d %s replayed=%v\n", name, s.Key, s.User.UserID, s.Seen.Status, s.Seen.Code, s.Seen.Replayed)
			}
		})
	}
	wg.Wait()
	if failed != nil {
		return failed
	}
	fmt.Fprintf(out, "%d requests, every second one in trouble\n", l.n.Load())
	return audit(ctx, os.Getenv("TOOLLEDGER_EVENTS"), out)
}

// live runs an agent that dies after its first action, before it has seen what came of it, and then goes on.
func live(ctx context.Context, way Way, m Memory, want User) (Memory, error) {
	errDied := errors.New("died")
	saved, dies := m, true
	save := func(now Memory) error {
		if dies && now.Steps[0].Seen != nil {
			dies = false
			return errDied
		}
		saved = Memory{now.Session, append([]Step(nil), now.Steps...)}
		return nil
	}
	c := &Caller{Way: way, Tries: 10}
	err := run(ctx, namer{want}, c, &m, save)
	if errors.Is(err, errDied) {
		m = saved
		err = run(ctx, namer{want}, c, &m, save)
	}
	return m, err
}

// createUsers makes the users table: its key is tenant and user.
func createUsers(ctx context.Context, db *dynamodb.Client, name string) error {
	_, err := db.CreateTable(ctx, &dynamodb.CreateTableInput{
		TableName: &name, BillingMode: types.BillingModePayPerRequest,
		AttributeDefinitions: []types.AttributeDefinition{
			{AttributeName: new(tenantKey), AttributeType: types.ScalarAttributeTypeS},
			{AttributeName: new(userKey), AttributeType: types.ScalarAttributeTypeS},
		},
		KeySchema: []types.KeySchemaElement{
			{AttributeName: new(tenantKey), KeyType: types.KeyTypeHash},
			{AttributeName: new(userKey), KeyType: types.KeyTypeRange},
		},
	})
	if _, there := errors.AsType[*types.ResourceInUseException](err); there {
		return nil
	}
	return err
}

// audit writes the audit log of the events that `toolledger dev --json` has shown in a file.
func audit(ctx context.Context, file string, out io.Writer) error {
	if file == "" {
		return nil
	}
	time.Sleep(time.Second) // until the events are out
	f, err := os.Open(file)
	if err != nil {
		return err
	}
	defer f.Close()
	fmt.Fprintln(out, "the audit log:")
	log := &auditLog{out: out}
	lines := bufio.NewScanner(f)
	lines.Scan() // what dev says of itself
	for lines.Scan() {
		if err := log.handle(ctx, lines.Bytes()); err != nil {
			return err
		}
	}
	return lines.Err()
}
