package streams

import (
	"errors"
	"fmt"

	"toolledger/internal/schema"
)

// ErrConfig is wrapped by what the constructors of this package return for a configuration that cannot work.
var ErrConfig = errors.New("streams: bad configuration")

// ErrRunning is returned by Poller.Run where another call of it has not returned.
var ErrRunning = errors.New("streams: the poller is running already")

// errStopped says that the polling that Drain waited for was stopped.
var errStopped = errors.New("streams: the poller stopped before the stream was drained")

// publishError says that a publisher failed. Whatever its cause says, waiting may mend it: a bus can be made, and a
// permission given, while a poller runs.
type publishError struct{ err error }

func (e *publishError) Error() string { return "publish: " + e.err.Error() }

func (e *publishError) Unwrap() error { return e.err }

func configError(field, rule string) error { return fmt.Errorf("%w: %s %s", ErrConfig, field, rule) }

// UnreadableError is returned by Derive for a record that cannot be understood: it is no toolledger item, is written in a
// newer format, or breaks a rule of its type. The Consumer keeps such a record and publishes AuditRecordUnreadable. It
// never holds a value.
type UnreadableError struct {
	Attr string // attribute; "" where the record or its keys are meant
	Rule string // what would have been right there
}

// Error tells where the record could not be read, and the rule it broke.
func (e *UnreadableError) Error() string {
	if e.Attr == "" {
		return "streams: unreadable record: " + e.Rule
	}
	return "streams: unreadable record: " + e.Attr + ": " + e.Rule
}

// unreadable turns what a decoder of the schema returned into an UnreadableError.
func unreadable(err error) error {
	if d, ok := errors.AsType[*schema.DecodeError](err); ok {
		return &UnreadableError{d.Attr, d.Rule}
	}
	return &UnreadableError{Rule: err.Error()}
}

// BatchError is returned by Consumer.HandleBatch where no partial answer is possible: the batch is no stream batch, or
// the record that failed has no sequence number to report it by. Lambda then delivers the whole batch again.
type BatchError struct {
	Reason string
	Err    error // cause; may be nil
}

// Error tells why the batch as a whole failed.
func (e *BatchError) Error() string {
	if e.Err == nil {
		return "streams: batch: " + e.Reason
	}
	return fmt.Sprintf("streams: batch: %s: %v", e.Reason, e.Err)
}

// Unwrap returns the cause.
func (e *BatchError) Unwrap() error { return e.Err }
