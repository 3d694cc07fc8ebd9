package main

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
)

// Promise: no web page on a developer's machine gets anything from dev or changes anything in it, neither across origins nor under
// a name that was made to resolve to the loopback; and programs are served as before.
func TestDevFront(t *testing.T) {
	front := devFront("ledger.test:8700", http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusNoContent) }))
	for _, tt := range []struct {
		method, host string
		headers      []string
		served       bool
	}{
		{"POST", "127.0.0.1:8700", nil, true},
		{"POST", "127.9.9.9:8700", nil, true},
		{"POST", "[::1]:8700", nil, true},
		{"POST", "[::1]", nil, true},
		{"POST", "localhost:8700", nil, true},
		{"POST", "LOCALHOST", nil, true},
		{"GET", "app.localhost:8700", nil, true},
		{"PUT", "ledger.test:8700", nil, true},
		{"PUT", "Ledger.Test.", nil, true},
		{"POST", "192.168.1.7:8700", nil, true}, // an address is no name that somebody can point elsewhere
		{"POST", "evil.example:8700", nil, false},
		{"GET", "evil.example:8700", nil, false},
		{"GET", "localhost.evil.example", nil, false},
		{"GET", "127.0.0.1.evil.example", nil, false},
		{"GET", "127.0.0.1:8700.evil.example", nil, false},
		{"GET", "evillocalhost", nil, false},
		{"GET", "", nil, false},
		{"GET", "xledger.test", nil, false},
		{"POST", "127.0.0.1:8700", []string{"Origin", "http://evil.example"}, false},
		{"POST", "127.0.0.1:8700", []string{"Origin", "null"}, false},
		{"POST", "127.0.0.1:8700", []string{"Origin", "http://127.0.0.1:9999"}, false},
		{"PUT", "localhost:8700", []string{"Sec-Fetch-Site", "cross-site"}, false},
		{"PUT", "localhost:8700", []string{"Sec-Fetch-Site", "same-site"}, false},
		{"DELETE", "localhost:8700", []string{"Origin", "http://evil.example", "Sec-Fetch-Site", "cross-site"}, false},
		{"POST", "localhost:8700", []string{"Origin", "http://localhost:8700"}, true},
		{"POST", "localhost:8700", []string{"Sec-Fetch-Site", "same-origin"}, true},
		{"GET", "localhost:8700", []string{"Origin", "http://evil.example"}, true}, // it changes nothing, and the browser keeps the answer
	} {
		r := httptest.NewRequest(tt.method, "/v1/commit", strings.NewReader("{}"))
		r.Host = tt.host
		for i := 0; i+1 < len(tt.headers); i += 2 {
			r.Header.Set(tt.headers[i], tt.headers[i+1])
		}
		w := httptest.NewRecorder()
		front.ServeHTTP(w, r)
		if served := w.Code == http.StatusNoContent; served != tt.served {
			t.Errorf("%s %s %q: %d", tt.method, tt.host, tt.headers, w.Code)
		}
		var doc struct{ Type, Title, Code, Detail string }
		if !tt.served && (w.Code != http.StatusForbidden || w.Header().Get("Content-Type") != "application/problem+json" ||
			json.Unmarshal(w.Body.Bytes(), &doc) != nil || doc.Code != "forbidden" || doc.Type == "" || doc.Title == "" || doc.Detail == "") {
			t.Errorf("%s %s %q: %d %s", tt.method, tt.host, tt.headers, w.Code, w.Body)
		}
	}
}
