package api

import (
	"fmt"
	"net/url"
	"slices"
	"strconv"
)

// query is the parameters of a URL, each given once. err is the first fault; what is read after it means nothing.
type query struct {
	op     string
	values map[string]string
	err    error
}

// readQuery refuses parameters that are not allowed, doubled or badly encoded with writers.ErrInvalid.
func readQuery(op string, u *url.URL, allowed ...string) *query {
	q := &query{op: op, values: map[string]string{}}
	all, err := url.ParseQuery(u.RawQuery)
	if err != nil {
		q.fail("query", "is badly encoded")
	}
	for _, name := range sortedNames(all) {
		switch {
		case !slices.Contains(allowed, name):
			q.fail(nameToShow(name), "is not a parameter here")
		case len(all[name]) > 1:
			q.fail(name, "is given more than once")
		}
		q.values[name] = all[name][0]
	}
	return q
}

func (q *query) fail(name, rule string) {
	if q.err == nil {
		q.err = invalid(q.op, name, rule)
	}
}

func (q *query) required(name string) string {
	v := q.values[name]
	if v == "" {
		q.fail(name, "is required")
	}
	return v
}

// choice returns one of among, the first where the parameter is absent.
func (q *query) choice(name string, among ...string) string {
	v, ok := q.values[name]
	if !ok {
		return among[0]
	}
	if v == "" || !slices.Contains(among, v) {
		q.fail(name, mustBe(among))
	}
	return v
}

func (q *query) number(name string, absent, low, high int64) int64 {
	v, ok := q.values[name]
	if !ok {
		return absent
	}
	n, err := strconv.ParseInt(v, 10, 64)
	if err != nil || n < low || n > high {
		q.fail(name, fmt.Sprintf("must be an integer from %d to %d", low, high))
	}
	return n
}
