package main

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	v4 "github.com/aws/aws-sdk-go-v2/aws/signer/v4"
)

// A Way carries one request to the function and brings its answer. An error says that nobody knows whether the function ran.
type Way func(ctx context.Context, in request) (answer, error)

// Caller sends a request until it has an answer. Every try has the same key, so it does not matter which of them the
// function got, or how many.
type Caller struct {
	Way   Way
	Tries int                                      // at most; 0 means 5
	Pause func(ctx context.Context, try int) error // between tries; nil means 50 ms doubling to 2 s, with full jitter
}

// ErrUnknown is returned by Call where no try had an answer. The user may exist; the same request may be sent again.
var ErrUnknown = errors.New("no answer: the user may or may not exist; send the same request again")

// Call returns the function's answer, be it a refusal. Errors: ErrUnknown, ctx's.
func (c *Caller) Call(ctx context.Context, in request) (answer, error) {
	tries, pause := c.Tries, c.Pause
	if tries == 0 {
		tries = 5
	}
	if pause == nil {
		pause = jitter
	}
	var err error
	for try := range tries {
		if try > 0 {
			if err := pause(ctx, try); err != nil {
				return answer{}, errors.Join(ErrUnknown, err)
			}
		}
		var a answer
		if a, err = c.Way(ctx, in); err == nil && a.Status != 0 && a.Status < http.StatusInternalServerError {
			return a, nil
		}
		if err == nil {
			err = fmt.Errorf("status %d", a.Status)
		}
	}
	return answer{}, fmt.Errorf("%w (last: %w)", ErrUnknown, err)
}

func jitter(ctx context.Context, try int) error {
	most := min(50*time.Millisecond<<min(try, 8), 2*time.Second)
	timer := time.NewTimer(rand.N(most))
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-timer.C:
		return nil
	}
}

// viaHTTP sends requests to an HTTP API. token is the caller's.
func viaHTTP(client *http.Client, url, token string) Way {
	return func(ctx context.Context, in request) (answer, error) {
		body, err := json.Marshal(in)
		if err != nil {
			return answer{}, err
		}
		req, err := http.NewRequestWithContext(ctx, http.MethodPost, url, bytes.NewReader(body))
		if err != nil {
			return answer{}, err
		}
		req.Header.Set("Content-Type", "application/json")
		req.Header.Set("Authorization", "Bearer "+token)
		status, text, err := send(client, req)
		if err != nil {
			return answer{}, err
		}
		return read(status, text)
	}
}

// viaLambda invokes the function itself, with signed requests to Lambda's Invoke operation at endpoint
// (https://lambda.REGION.amazonaws.com).
func viaLambda(cfg aws.Config, endpoint, function, tenant string) Way {
	signer := v4.NewSigner()
	client := &http.Client{Timeout: 30 * time.Second}
	return func(ctx context.Context, in request) (answer, error) {
		payload, err := json.Marshal(invocation{tenant, in})
		if err != nil {
			return answer{}, err
		}
		req, err := http.NewRequestWithContext(ctx, http.MethodPost, endpoint+"/2015-03-31/functions/"+function+"/invocations", bytes.NewReader(payload))
		if err != nil {
			return answer{}, err
		}
		who, err := cfg.Credentials.Retrieve(ctx)
		if err != nil {
			return answer{}, err
		}
		sum := sha256.Sum256(payload)
		if err := signer.SignHTTP(ctx, who, req, hex.EncodeToString(sum[:]), "lambda", cfg.Region, time.Now()); err != nil {
			return answer{}, err
		}
		res, err := client.Do(req)
		if err != nil {
			return answer{}, err
		}
		defer res.Body.Close()
		text, err := io.ReadAll(io.LimitReader(res.Body, 6<<20))
		switch {
		case err != nil:
			return answer{}, err
		case res.StatusCode != http.StatusOK: // throttled, or Lambda's own trouble
			return answer{}, fmt.Errorf("invoke: %s", res.Status)
		case res.Header.Get("X-Amz-Function-Error") != "": // it ran, and may have written before it failed
			return answer{}, fmt.Errorf("function error: %s", text)
		}
		var a answer
		return a, json.Unmarshal(text, &a)
	}
}

func send(client *http.Client, req *http.Request) (int, []byte, error) {
	res, err := client.Do(req)
	if err != nil {
		return 0, nil, err
	}
	defer res.Body.Close()
	text, err := io.ReadAll(io.LimitReader(res.Body, 6<<20))
	return res.StatusCode, text, err
}

// read tells the function's answers from those of whatever is in front of it: only the function's have its status inside.
func read(status int, text []byte) (answer, error) {
	var a answer
	if json.Unmarshal(text, &a) != nil || a.Status != status {
		return answer{}, fmt.Errorf("status %d, not from the function", status)
	}
	return a, nil
}
