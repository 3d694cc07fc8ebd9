package main

import (
	"context"
	"encoding/json"
	"errors"
	"sync"

	"github.com/aws/aws-sdk-go-v2/service/dynamodb"

	"toolledger/writers"
)

// errDead is what a dead worker's requests come to.
var errDead = errors.New("the worker that sent this is dead")

// worker is one caller of a tool. Once it is dead nothing that it sends reaches the ledger, as if its process had been
// killed at that moment, although the goroutine goes on for a little while.
type worker struct {
	once sync.Once
	dead chan struct{}
}

type workerKey struct{}

// workerOf returns the worker whose context this is, or nil.
func workerOf(ctx context.Context) *worker {
	w, _ := ctx.Value(workerKey{}).(*worker)
	return w
}

func (w *worker) die() { w.once.Do(func() { close(w.dead) }) }

func (w *worker) died() bool {
	select {
	case <-w.dead:
		return true
	default:
		return false
	}
}

// mortal is a DynamoDB client through which the dead send nothing.
type mortal struct{ db writers.DynamoDB }

func alive(ctx context.Context) error {
	if w := workerOf(ctx); w != nil && w.died() {
		return errDead
	}
	return nil
}

// TransactGetItems is the client's.
func (m mortal) TransactGetItems(ctx context.Context, in *dynamodb.TransactGetItemsInput, o ...func(*dynamodb.Options)) (*dynamodb.TransactGetItemsOutput, error) {
	if err := alive(ctx); err != nil {
		return nil, err
	}
	return m.db.TransactGetItems(ctx, in, o...)
}

// TransactWriteItems is the client's.
func (m mortal) TransactWriteItems(ctx context.Context, in *dynamodb.TransactWriteItemsInput, o ...func(*dynamodb.Options)) (*dynamodb.TransactWriteItemsOutput, error) {
	if err := alive(ctx); err != nil {
		return nil, err
	}
	return m.db.TransactWriteItems(ctx, in, o...)
}

// GetItem is the client's.
func (m mortal) GetItem(ctx context.Context, in *dynamodb.GetItemInput, o ...func(*dynamodb.Options)) (*dynamodb.GetItemOutput, error) {
	if err := alive(ctx); err != nil {
		return nil, err
	}
	return m.db.GetItem(ctx, in, o...)
}

// UpdateItem is the client's.
func (m mortal) UpdateItem(ctx context.Context, in *dynamodb.UpdateItemInput, o ...func(*dynamodb.Options)) (*dynamodb.UpdateItemOutput, error) {
	if err := alive(ctx); err != nil {
		return nil, err
	}
	return m.db.UpdateItem(ctx, in, o...)
}

// Query is the client's.
func (m mortal) Query(ctx context.Context, in *dynamodb.QueryInput, o ...func(*dynamodb.Options)) (*dynamodb.QueryOutput, error) {
	if err := alive(ctx); err != nil {
		return nil, err
	}
	return m.db.Query(ctx, in, o...)
}

// answer is what one attempt came to.
type answer struct {
	json json.RawMessage // of a call that took effect
	err  error
	died bool // the worker did not live to tell
}

// attempt calls a tool as one worker. It returns as soon as the worker is dead: what is left of it ends by itself, which
// settle and end wait for.
func (s *story) attempt(ctx context.Context, c *intent, retry bool) answer {
	s.attempts.Add(1)
	w := &worker{dead: make(chan struct{})}
	ctx, cancel := context.WithCancel(context.WithValue(ctx, workerKey{}, w))
	done := make(chan answer, 1)
	s.workers.Go(func() {
		defer cancel()
		done <- c.call(ctx, s, retry)
	})
	select {
	case a := <-done:
		if w.died() {
			return answer{died: true}
		}
		return a
	case <-w.dead:
		cancel()
		return answer{died: true}
	}
}
