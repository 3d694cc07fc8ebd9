package main

import (
	"fmt"
	"strconv"
	"strings"
	"unicode/utf8"

	"toolledger/streams/events"
)

// The colours of a terminal (ECMA-48).
const (
	colourNone   = "\x1b[0m"
	colourBad    = "\x1b[31m"
	colourGood   = "\x1b[32m"
	colourUneasy = "\x1b[33m"
	colourPlain  = "\x1b[36m"
)

// colourOf says at a glance whether somebody should look.
func colourOf(ev events.Event) string {
	switch ev.(type) {
	case *events.LedgerRowTampered, *events.SuspectedDoubleEffect, *events.AuditGap, *events.AuditRecordUnreadable:
		return colourBad
	case *events.ReservationStuck, *events.ReservationExpired, *events.IdempotencyKeyConflict, *events.QuotaExhausted,
		*events.QuotaLow, *events.ContentionGaveUp, *events.ToolEffectSettledLate:
		return colourUneasy
	case *events.ToolEffectApplied, *events.ToolEffectCompensated:
		return colourGood
	}
	return colourPlain
}

// eventLine prints an event for a person on stdout. The error is that of writing.
func (a *app) eventLine(ev events.Event, colour bool) error {
	h := ev.Head()
	what := h.Tenant
	for _, part := range []string{h.Session, h.Key} {
		if part != "" {
			what += "/" + part
		}
	}
	what = printable(what)
	if h.Tool != "" {
		what += " " + printable(h.Tool)
	}
	if h.Attempt > 0 {
		what += fmt.Sprintf(" attempt %d", h.Attempt)
	}
	more, err := beside(ev)
	if err != nil {
		return err
	}
	name := fmt.Sprintf("%-22s", printable(ev.DetailType()))
	if colour {
		name = colourOf(ev) + name + colourNone
	}
	_, err = fmt.Fprintf(a.stdout, "%s  %s %s %s\n", h.Time.Local().Format("2006-01-02 15:04:05.000"), name, what, onePrintedLine(more))
	return err
}

// onePrintedLine puts U+FFFD for what would act on a terminal instead of being shown: the names of an unknown event's fields
// are whatever a file says.
func onePrintedLine(s string) string {
	return strings.Map(func(r rune) rune {
		if !strconv.IsPrint(r) {
			return utf8.RuneError
		}
		return r
	}, s)
}
