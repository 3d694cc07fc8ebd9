package main

import (
	"context"
	"log/slog"
	"strings"
	"testing"
)

// A function that is deployed with wrong settings says at once which one, and never starts: the alternative is an audit
// that publishes into nowhere.
func TestWireRefusesBadSettings(t *testing.T) {
	t.Setenv("AWS_REGION", "eu-central-1")
	good := map[string]string{"EVENT_BUS": "audit"}
	for name, tc := range map[string]struct{ key, value, want string }{
		"no bus":           {"EVENT_BUS", "", "EVENT_BUS"},
		"unknown sink":     {"METRICS_SINK", "statsd", "METRICS_SINK"},
		"tenants no count": {"METRICS_TENANTS", "many", "METRICS_TENANTS"},
		"no tenants":       {"METRICS_TENANTS", "0", "METRICS_TENANTS"},
		"foreign names":    {"METRICS_NAMESPACE", "AWS/Lambda", "METRICS_NAMESPACE"},
	} {
		env := func(key string) string {
			if key == tc.key {
				return tc.value
			}
			return good[key]
		}
		if _, err := wire(t.Context(), env, slog.New(slog.DiscardHandler)); err == nil || !strings.Contains(err.Error(), tc.want) {
			t.Errorf("%s: got %v", name, err)
		}
	}
	if _, err := newLogger("loud"); err == nil {
		t.Error("an unknown level: no error")
	}
}

// Each sink that can be chosen makes a consumer that works.
func TestWire(t *testing.T) {
	t.Setenv("AWS_REGION", "eu-central-1")
	for _, sink := range []string{"", "cloudwatch", "emf", "none"} {
		env := func(key string) string { return map[string]string{"EVENT_BUS": "audit", "METRICS_SINK": sink}[key] }
		c, err := wire(context.Background(), env, slog.New(slog.DiscardHandler))
		if err != nil {
			t.Fatalf("%q: %v", sink, err)
		}
		answer, err := c.HandleBatch(t.Context(), []byte(`{"Records":[]}`))
		if err != nil || string(answer) != `{"batchItemFailures":[]}` {
			t.Errorf("%q: got %s, %v", sink, answer, err)
		}
	}
}
