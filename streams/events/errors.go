package events

import (
	"errors"
	"fmt"
)

// ErrForeign is returned by Parse for an event of another source: a rule that matches too much.
var ErrForeign = errors.New("events: not an event of toolledger")

// ParseError is returned by Parse for what is no EventBridge event, or has no detail of its type.
type ParseError struct {
	Type  string // detail-type, where it could be read
	Field string // "envelope", "detail", "detail.id", …
	Err   error  // cause; nil where the field is missing
}

// Error tells which field could not be read and why.
func (e *ParseError) Error() string {
	what := "is missing"
	if e.Err != nil {
		what = e.Err.Error()
	}
	if e.Type == "" {
		return fmt.Sprintf("events: %s: %s", e.Field, what)
	}
	return fmt.Sprintf("events: %s: %s: %s", e.Type, e.Field, what)
}

// Unwrap returns the cause.
func (e *ParseError) Unwrap() error { return e.Err }
