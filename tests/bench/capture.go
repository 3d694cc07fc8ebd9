package main

import (
	"bytes"
	"encoding/json"
	"io"
	"net/http"
	"strings"
	"sync"

	"github.com/aws/aws-sdk-go-v2/feature/dynamodb/attributevalue"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"

	"toolledger/internal/schema"
	"toolledger/internal/stack"
)

// captured is a request as it went out.
type captured struct {
	operation string
	body      []byte
}

// capture stands in for the network: it answers a script at once and keeps what was sent.
type capture struct {
	script script
	keep   bool

	mu   sync.Mutex
	sent []captured
}

// Do implements the SDK's HTTPClient.
func (c *capture) Do(r *http.Request) (*http.Response, error) {
	_, operation, _ := strings.Cut(r.Header.Get("X-Amz-Target"), ".")
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return nil, err
	}
	if c.keep {
		c.mu.Lock()
		c.sent = append(c.sent, captured{operation, body})
		c.mu.Unlock()
	}
	a := c.script.answer(operation, body)
	return &http.Response{
		StatusCode: a.Status, Body: io.NopCloser(bytes.NewReader(a.Body)), Request: r, Header: http.Header{},
		Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1, ContentLength: int64(len(a.Body)),
	}, nil
}

func (c *capture) client() *dynamodb.Client {
	cfg := stack.AWSConfig("http://127.0.0.1:1")
	cfg.HTTPClient = c
	return dynamodb.NewFromConfig(cfg)
}

// take returns what was sent since it was last called.
func (c *capture) take() []captured {
	c.mu.Lock()
	defer c.mu.Unlock()
	sent := c.sent
	c.sent = nil
	return sent
}

// wire is an item as DynamoDB writes it.
func wire(item schema.Item) json.RawMessage {
	text, err := attributevalue.MarshalMapJSON(item)
	if err != nil {
		return nil // items hold no values but those that the schema makes
	}
	return text
}
