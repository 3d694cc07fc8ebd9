package main

import (
	"fmt"
	"net"
	"net/http"
	"sync"
	"time"
)

// board is the outside world of this example: a service that stores a note once per Idempotency-Key.
type board struct {
	url    string
	server *http.Server

	mu    sync.Mutex
	notes map[string]string // location by idempotency key
}

func openBoard() (*board, error) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	b := &board{url: "http://" + ln.Addr().String(), notes: map[string]string{}}
	b.server = &http.Server{Handler: b, ReadHeaderTimeout: 5 * time.Second}
	go func() { _ = b.server.Serve(ln) }() // ends with close
	return b, nil
}

// ServeHTTP stores a note.
func (b *board) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	b.mu.Lock()
	defer b.mu.Unlock()
	key := r.Header.Get("Idempotency-Key")
	location, known := b.notes[key]
	if !known {
		location = fmt.Sprintf("/notes/%d", len(b.notes)+1)
		b.notes[key] = location
	}
	w.Header().Set("Location", location)
	w.WriteHeader(http.StatusCreated)
}

func (b *board) count() int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return len(b.notes)
}

func (b *board) close() { _ = b.server.Close() }
