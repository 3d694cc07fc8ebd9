package streams

import (
	"log/slog"
	"testing"
	"time"

	"go.uber.org/goleak"
)

// Nothing of this package may outlive its caller: publishers and pollers end what they begin.
func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var silent = slog.New(slog.DiscardHandler)

func fixedNow() time.Time { return t0.Add(2 * time.Hour) }
