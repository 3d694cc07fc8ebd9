package writers

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"
	"unicode"

	"toolledger/internal/canon"
	"toolledger/internal/schema"
)

// The functions below say what happened, why, and what to do, in the same words everywhere. They name identifiers and
// argument names, never arguments, lookups or results.

func invalid(op, field, rule string) *Error {
	return &Error{Code: ErrInvalid, Op: op, Field: field, Reason: field + " " + rule + "; nothing was written"}
}

// invalidID turns the refusal of an identifier or of arguments into an Error.
func invalidID(op string, err error) *Error {
	if e, ok := errors.AsType[*schema.IDError](err); ok {
		return invalid(op, e.Field, e.Rule)
	}
	if field, rule, ok := canonRule(err); ok {
		return invalid(op, field, rule)
	}
	return &Error{Code: ErrInvalid, Op: op, Reason: "nothing was written", Err: err}
}

// canonRule says which part of an intent has no canonical form, and why.
func canonRule(err error) (field, rule string, ok bool) {
	e, ok := errors.AsType[*canon.Error](err)
	if !ok {
		return "", "", false
	}
	field = "args"
	if e.Field == canon.FieldTool {
		field = "tool"
	}
	return field, strings.TrimPrefix(e.Error(), "canon: "+e.Field+": "), true
}

// clock tells a moment by its time of day, and by its date too where that is needed to know which day's.
func clock(t, now time.Time) string {
	if t.Sub(now).Abs() < 12*time.Hour {
		return t.UTC().Format("15:04:05Z")
	}
	return t.UTC().Format("2006-01-02T15:04:05Z")
}

// tokens writes a number with thousands separated.
func tokens(n int64) string {
	s := fmt.Sprint(n)
	sign := ""
	if strings.HasPrefix(s, "-") {
		sign, s = "-", s[1:]
	}
	for i := len(s) - 3; i > 0; i -= 3 {
		s = s[:i] + "," + s[i:]
	}
	return sign + s
}

func (c *request) conflict(found *schema.Row) *Error {
	e := &Error{Code: ErrKeyConflict, Op: c.op, Call: c.info(found)}
	if found.Tool != c.Tool {
		e.Differs = append(e.Differs, "tool")
	}
	if old, err := canon.DecodeArgHashes(found.ArgHashes); err == nil {
		e.Differs = append(e.Differs, canon.Differs(old, c.intent.Args)...)
	}
	if !c.sameOriginal(found) {
		e.Differs = append(e.Differs, "compensates")
	}
	differs := ""
	if len(e.Differs) > 0 {
		differs = " (differs: " + strings.Join(e.Differs, ", ") + ")"
	}
	e.Reason = fmt.Sprintf("key %q was first used for another action%s; nothing was written; "+
		"use a new key for a new action, or send the first arguments to get its result", c.Key.id, differs)
	return e
}

// inProgress says that an attempt is, or may still be, at work until settles.
func (c *request) inProgress(found *schema.Row, settles, now time.Time) *Error {
	e := &Error{Code: ErrInProgress, Op: c.op, Call: c.info(found), RetryAfter: retryIn(settles.Sub(now))}
	what := "is running until " + clock(found.Deadline, now)
	switch {
	case found.Held:
		what = "is held for a person to decide"
	case found.State == schema.StateFailed:
		what = "was given back, but may still land until " + clock(settles, now)
	case now.After(found.Deadline):
		what = "ended at " + clock(found.Deadline, now) + " unrecorded and may still land until " + clock(settles, now)
	}
	e.Reason = fmt.Sprintf("attempt %d of %q %s; it was not started again; repeat the same call in %s or wait for its result",
		found.Attempt, c.Key.id, what, e.RetryAfter)
	return e
}

// retryIn bounds how long a caller should wait: often enough to see the holder finish, not much past the moment that
// decides.
func retryIn(left time.Duration) time.Duration {
	return min(max(left.Round(time.Second), time.Second), retryMost)
}

const retryMost = 5 * time.Second

func (c *request) unknown(found *schema.Row) *Error {
	e := &Error{Code: ErrOutcomeUnknown, Op: c.op, Call: c.info(found)}
	if found.Held {
		e.Reason = fmt.Sprintf("attempt %d of %q is held: nobody could tell whether it took effect; "+
			"it was not started again; a person must resolve it", found.Attempt, c.Key.id)
		return e
	}
	e.Reason = fmt.Sprintf("attempt %d of %q ended without a record and may have taken effect; it was not started again; "+
		"ask the outside system, then resolve it as applied or repeat the call with VerifiedAbsent", found.Attempt, c.Key.id)
	return e
}

func (c *request) exhausted(no *exhaustedError) *Error {
	e := &Error{Code: ErrQuotaExhausted, Op: c.op, Need: c.Tokens, Remaining: no.remaining, ResetsAt: schema.PeriodEnd(no.period)}
	next := "the quota never resets"
	if !e.ResetsAt.IsZero() {
		next = "the next period begins " + e.ResetsAt.Format("2006-01-02T15:04Z")
	}
	e.Reason = fmt.Sprintf("needs %s tokens, %s of %s remain in %s; nothing was done; %s; raise the plan or wait, retrying does not help",
		tokens(e.Need), tokens(no.remaining), tokens(no.granted), no.period, next)
	return e
}

func notProvisioned(op string, tenant TenantID) *Error {
	return &Error{
		Code: ErrNotProvisioned, Op: op,
		Reason: fmt.Sprintf("tenant %q has no plan; nothing was done; give it one (toolledger plan, Tenant.PutPlan)", string(tenant)),
	}
}

func suspended(op string, tenant TenantID) *Error {
	return &Error{
		Code: ErrSuspended, Op: op,
		Reason: fmt.Sprintf("an operator stopped tenant %q; nothing was done; try again once it is resumed", string(tenant)),
	}
}

func sessionMoved(op, session, cursor string, expect *string) *Error {
	want := ""
	if expect != nil {
		want = *expect
	}
	return &Error{
		Code: ErrSessionMoved, Op: op, Cursor: cursor, Reason: fmt.Sprintf(
			"session %q is at cursor %q, not at %q; nothing was written; read the session's calls and plan again", session, cursor, want),
	}
}

// unavailable says that AWS did not answer in a way that decides anything.
func unavailable(op string, err error) *Error {
	return &Error{
		Code: ErrUnavailable, Op: op, RetryAfter: time.Second, Err: err,
		Reason: "DynamoDB did not answer; the call may or may not be recorded; repeat it with the same key",
	}
}

// rejected says that DynamoDB does not accept the request at all.
func rejected(op string, err error) *Error {
	return &Error{
		Code: ErrUnavailable, Op: op, Err: err,
		Reason: "DynamoDB does not accept the request; nothing was written; check tables, Region and permissions",
	}
}

func contention(op string, tries int) *Error {
	return &Error{
		Code: ErrUnavailable, Op: op, RetryAfter: time.Second, Reason: fmt.Sprintf(
			"contention did not end after %d tries; nothing was written; repeat the call with the same key, or give the tenant more shards", tries),
	}
}

func unreadable(op string, err error) *Error {
	return &Error{
		Code: ErrUnavailable, Op: op, Err: err,
		Reason: "the stored item cannot be read by this program; nothing was written; was it changed by hand, or by a newer version?",
	}
}

func quoted(s string) string { return strconv.Quote(s) }

// clip cuts free text to limit bytes of valid UTF-8 without control characters: it explains, it decides nothing.
func clip(s string, limit int) string {
	s = strings.Map(func(r rune) rune {
		if unicode.IsControl(r) {
			return ' '
		}
		return r
	}, strings.ToValidUTF8(s, "?"))
	if len(s) <= limit {
		return s
	}
	return strings.ToValidUTF8(s[:limit], "")
}
