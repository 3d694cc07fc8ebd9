package outside

import (
	"bytes"
	"context"
	"net/http"
)

// newRequest makes a request that net/http never sends twice by itself. It would where the header Idempotency-Key is set and a
// reused connection closes without an answer, and a world without keys would then take effect twice; without GetBody it cannot.
func newRequest(ctx context.Context, method, url string, body []byte) (*http.Request, error) {
	in, err := http.NewRequestWithContext(ctx, method, url, bytes.NewReader(body))
	if err != nil {
		return nil, err
	}
	if body != nil {
		in.Header.Set("Content-Type", "application/json")
		in.GetBody = nil
	}
	return in, nil
}
