// Package jitter draws the random pauses and choices that keep callers apart. It draws from crypto/rand, not because
// anything here is secret, but because that source can be made deterministic for a test (testing/cryptotest): the top-level
// functions of math/rand cannot be seeded, and a simulation that finds a fault has to find it again.
package jitter

import (
	"crypto/rand"
	"encoding/binary"
	"time"
)

// N returns a duration of at least 0 and below limit; 0 where limit is not above 0.
func N(limit time.Duration) time.Duration { return time.Duration(below(int64(limit))) }

// IntN returns a number of at least 0 and below n; 0 where n is not above 0.
func IntN(n int) int { return int(below(int64(n))) }

// below is not exactly uniform: its error is n / 2^64, which no pause can notice.
func below(n int64) int64 {
	if n <= 0 {
		return 0
	}
	var b [8]byte
	_, _ = rand.Read(b[:]) // never fails: it ends the process instead
	return int64(binary.LittleEndian.Uint64(b[:]) % uint64(n))
}
