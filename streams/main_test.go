package streams

import (
	"testing"

	"go.uber.org/goleak"
)

// Nothing of this package may outlive its caller: publishers and pollers end what they begin.
func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }
