package main

import (
	crand "crypto/rand"
	"encoding/binary"
	"io"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/aws/retry"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	smithyrand "github.com/aws/smithy-go/rand"

	"toolledger/internal/jitter"
)

// seeded is a source of random bytes that a seed decides.
type seeded struct {
	mu     sync.Mutex
	src    *rand.ChaCha8
	moment func() uint64 // a number that stands for the seed and this moment
}

// jitterBytes is how much one pause draws; ids and tokens draw more.
const jitterBytes = 8

// Read never fails. A pause depends on the moment alone: which of two goroutines draws first at one moment is the runtime's
// choice, and no history may depend on that. Ids come one after the other, since they must differ; no decision looks at them.
func (s *seeded) Read(p []byte) (int, error) {
	if len(p) == jitterBytes {
		binary.LittleEndian.PutUint64(p, s.moment())
		return len(p), nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.src.Read(p)
}

// seedRandom makes everything that the process draws follow from a seed: row ids, nonces, jitter, the SDK's tokens. What it
// returns takes that back. (testing/cryptotest does the same, in test binaries alone.)
//
// Ids also differ from run to run on one store, which remembers the SDK's tokens; no history depends on them.
func seedRandom(seed uint64, number int64, moment func() uint64) (restore func()) {
	var key [32]byte
	for i := range 8 {
		key[i], key[8+i] = byte(seed>>(8*i)), byte(number>>(8*i)) //nolint:gosec // the lowest byte is meant
	}
	s := &seeded{src: rand.NewChaCha8(key), moment: moment}
	before, smithyBefore := crand.Reader, smithyrand.Reader
	crand.Reader, smithyrand.Reader = io.Reader(s), io.Reader(s)
	return func() { crand.Reader, smithyrand.Reader = before, smithyBefore }
}

// seededRetries makes the SDK draw the pauses between its retries from the same source; how often it retries, and what, and
// the ceilings of the pauses stay as they are.
func seededRetries(o *dynamodb.Options) {
	if r, ok := o.Retryer.(aws.RetryerV2); ok {
		o.Retryer = seededRetryer{r}
	}
}

type seededRetryer struct{ aws.RetryerV2 }

// RetryDelay is the SDK's: full jitter below 25 ms, for throttling below 1 s, doubled each time up to 20 s.
func (seededRetryer) RetryDelay(attempt int, err error) (time.Duration, error) {
	base := 25 * time.Millisecond
	for _, t := range retry.DefaultThrottles {
		if t.IsErrorThrottle(err).Bool() {
			base = time.Second
		}
	}
	return jitter.N(min(base<<min(attempt, 10), 20*time.Second)), nil
}
