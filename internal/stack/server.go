package stack

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
)

const (
	startWait  = 15 * time.Second // for a server to become ready, over all ports tried
	portTries  = 5
	probeTries = 20
	probeWait  = 25 * time.Millisecond
)

// Server is a running dynoxide. It is safe for concurrent use.
type Server struct {
	binary, dataFile string
	port             int
	config           aws.Config
	transport        *http.Transport
	log              *slog.Logger

	mu    sync.Mutex // held while the child is started or ended
	child *child

	quiet struct { // what the owner of a child reads when it ends
		sync.Mutex
		of *child // the child whose end is wanted
	}
}

// Start runs dynoxide on a free port of 127.0.0.1 and returns when it answers; ctx bounds the start only. End it with
// Stop; it also ends when this process does, even by kill -9. In memory, what it held is gone with it.
// Errors: ErrNotInstalled, ErrDataFile, ErrStart, ctx's.
func Start(ctx context.Context, cfg Config) (*Server, error) {
	binary, err := Find(cfg)
	if err != nil {
		return nil, err
	}
	dataFile, err := checkDataFile(cfg.DataFile)
	if err != nil {
		return nil, err
	}
	s := &Server{binary: binary, dataFile: dataFile, log: cfg.Logger}
	if s.log == nil {
		s.log = slog.New(slog.DiscardHandler)
	}
	ctx, cancel := context.WithTimeout(ctx, startWait)
	defer cancel()
	for range portTries {
		if s.port, err = freePort(ctx); err != nil {
			return nil, fmt.Errorf("%w: no free port: %w", ErrStart, err)
		}
		if s.child, err = s.run(ctx); !errors.Is(err, errPortTaken) {
			break
		}
	}
	if err != nil {
		return nil, err
	}
	s.config, s.transport = newConfig(s.Endpoint())
	s.log.Debug("local DynamoDB started", slog.String("endpoint", s.Endpoint()), slog.Int("pid", s.Pid()))
	return s, nil
}

// Endpoint returns the server's URL. It stays the same over Restart.
func (s *Server) Endpoint() string {
	return "http://" + net.JoinHostPort("127.0.0.1", strconv.Itoa(s.port))
}

// AWSConfig returns what clients of the server are made from: dynamodb.NewFromConfig(s.AWSConfig()). These clients share
// their connections, which end with the server.
func (s *Server) AWSConfig() aws.Config { return s.config.Copy() }

// Environ returns Environ of the server's endpoint.
func (s *Server) Environ() []string { return Environ(s.Endpoint()) }

// Pid returns the process id of dynoxide.
func (s *Server) Pid() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.child.proc.pid()
}

// Exited is closed when the running dynoxide ends, wanted or not. Restart starts another one: call Exited again.
func (s *Server) Exited() <-chan struct{} {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.child.exited
}

// Stop ends the server and returns when it has ended. It may be called again, also after a Crash.
func (s *Server) Stop() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.transport.CloseIdleConnections()
	s.expect(s.child)
	s.child.stop()
}

// Crash kills the server as kill -9 does and returns when it has ended.
func (s *Server) Crash() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.expect(s.child)
	s.child.kill()
	s.transport.CloseIdleConnections()
}

// Restart starts the server again on the same port and the same data file; one that still runs is killed first. In
// memory it comes back empty. Errors: ErrStart, ctx's.
func (s *Server) Restart(ctx context.Context) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.expect(s.child)
	s.child.kill()
	s.transport.CloseIdleConnections()
	ctx, cancel := context.WithTimeout(ctx, startWait)
	defer cancel()
	for {
		c, err := s.run(ctx)
		if err == nil {
			s.child = c
			return nil
		}
		// The port may belong for a moment to a connection that somebody made from it.
		if !errors.Is(err, errPortTaken) || sleep(ctx, probeWait) != nil {
			return err
		}
	}
}

// run starts one dynoxide on s.port and waits until it is ready. It returns errPortTaken where somebody else has the port.
func (s *Server) run(ctx context.Context) (*child, error) {
	args := []string{"serve", "--host", "127.0.0.1", "--port", strconv.Itoa(s.port)}
	if s.dataFile != "" {
		args = append(args, "--db-path", s.dataFile)
	}
	c, err := spawn(s.binary, args, s.ended)
	if err != nil {
		return nil, fmt.Errorf("%w: %s: %w", ErrStart, s.binary, err)
	}
	if err := s.ready(ctx, c); err != nil {
		s.expect(c)
		c.kill()
		return nil, err
	}
	return c, nil
}

// ready returns when the child listens and answers.
func (s *Server) ready(ctx context.Context, c *child) error {
	select {
	case <-c.out.listening:
	case <-c.exited:
		if strings.Contains(c.out.String(), "already in use") {
			return fmt.Errorf("%w: %w: %s", ErrStart, errPortTaken, c.out)
		}
		return fmt.Errorf("%w: it ended: %w: %s", ErrStart, c.err, c.out)
	case <-ctx.Done():
		return fmt.Errorf("%w: it does not listen: %w: %s", ErrStart, ctx.Err(), c.out)
	}
	var err error
	for range probeTries {
		if err = probe(ctx, s.Endpoint()); err == nil {
			return nil
		}
		if !c.alive() || sleep(ctx, probeWait) != nil {
			break
		}
	}
	return fmt.Errorf("%w: it does not answer: %w: %s", ErrStart, err, c.out)
}

// expect marks the end of c as wanted.
func (s *Server) expect(c *child) {
	s.quiet.Lock()
	defer s.quiet.Unlock()
	s.quiet.of = c
}

// ended logs the end of a child that nobody asked for.
func (s *Server) ended(c *child) {
	s.quiet.Lock()
	defer s.quiet.Unlock()
	if s.quiet.of != c {
		s.log.Warn("local DynamoDB ended by itself", slog.Int("pid", c.proc.pid()), slog.Any("error", c.err),
			slog.String("output", c.out.String()))
	}
}

func checkDataFile(path string) (string, error) {
	if path == "" {
		return "", nil
	}
	abs, err := filepath.Abs(path)
	if err != nil {
		return "", fmt.Errorf("%w: %s: %w", ErrDataFile, path, err)
	}
	if info, err := os.Stat(abs); err == nil && info.IsDir() {
		return "", fmt.Errorf("%w: %s is a folder", ErrDataFile, path)
	}
	if info, err := os.Stat(filepath.Dir(abs)); err != nil || !info.IsDir() {
		return "", fmt.Errorf("%w: %s: its folder does not exist", ErrDataFile, path)
	}
	if !emptyOrSQLite(abs) {
		return "", fmt.Errorf("%w: %s is no SQLite database, so it holds no ledger", ErrDataFile, path)
	}
	return abs, nil
}

// emptyOrSQLite is false for a file that can be read and is something else: a mistyped name. What cannot be read is left to
// dynoxide to refuse.
func emptyOrSQLite(path string) bool {
	const magic = "SQLite format 3\x00"
	f, err := os.Open(path)
	if err != nil {
		return true
	}
	defer f.Close()
	head := make([]byte, len(magic))
	n, err := io.ReadFull(f, head)
	return err != nil && n == 0 || string(head[:n]) == magic
}

// freePort returns a port that was free a moment ago.
func freePort(ctx context.Context) (int, error) {
	var cfg net.ListenConfig
	l, err := cfg.Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return 0, err
	}
	addr, ok := l.Addr().(*net.TCPAddr)
	if err := l.Close(); err != nil || !ok {
		return 0, fmt.Errorf("listening at %s: %w", l.Addr(), err)
	}
	return addr.Port, nil
}

// probe asks once whether somebody answers at the endpoint.
func probe(ctx context.Context, endpoint string) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, endpoint, http.NoBody)
	if err != nil {
		return err
	}
	client := http.Client{Transport: &http.Transport{DisableKeepAlives: true}, Timeout: 2 * time.Second}
	res, err := client.Do(req)
	if err != nil {
		return err
	}
	defer res.Body.Close()
	if res.StatusCode != http.StatusOK {
		return fmt.Errorf("status %s", res.Status)
	}
	return nil
}

func sleep(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
