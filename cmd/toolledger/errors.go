package main

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/spf13/pflag"
)

// The exit codes.
const (
	exitBroken      = 1
	exitBadInput    = 2
	exitInterrupted = 130 // what a shell reports for a program that Ctrl-C ended
)

// exitError is an error that chooses the exit code. All others mean exitBadInput: the command did not do its work.
type exitError struct {
	code int
	err  error
}

func (e *exitError) Error() string { return e.err.Error() }

func (e *exitError) Unwrap() error { return e.err }

// badInput says what the caller gave wrongly and where. The format is fmt.Errorf's.
func badInput(format string, args ...any) error {
	return &exitError{exitBadInput, fmt.Errorf(format, args...)}
}

// broken says which promise did not hold, or which race was lost. The format is fmt.Errorf's.
func broken(format string, args ...any) error {
	return &exitError{exitBroken, fmt.Errorf(format, args...)}
}

// exitCode returns the code that err ends the program with.
func exitCode(ctx context.Context, err error) int {
	if err == nil {
		return 0
	}
	if e, ok := errors.AsType[*exitError](err); ok {
		return e.code
	}
	if ctx.Err() != nil && errors.Is(err, context.Canceled) {
		return exitInterrupted
	}
	return exitBadInput
}

// flagText says what is wrong with a flag, in the words of somebody who does not know which function reads it.
func flagText(err error) string {
	bad, ok := errors.AsType[*pflag.InvalidValueError](err)
	if !ok {
		return err.Error()
	}
	flag := bad.GetFlag()
	want := map[string]string{
		"int": "a whole number", "int64": "a whole number", "uint64": "a whole number of at least 0", "float64": "a number",
		"bool": "true or false", "duration": "a time such as 90s, 5m or 1h30m",
	}[flag.Value.Type()]
	if want == "" {
		return err.Error()
	}
	return fmt.Sprintf("--%s %q: want %s", flag.Name, bad.GetValue(), want)
}

// oneLine renders err for stderr.
func oneLine(err error) string { return strings.Join(strings.Fields(err.Error()), " ") }
