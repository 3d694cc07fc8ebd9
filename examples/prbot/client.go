package prbot

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
)

// Client is a Forge over HTTP; see package forge for the requests. Base is its address, such as https://forge.example.
type Client struct {
	Base string
	HTTP *http.Client // nil means http.DefaultClient
}

// Open creates a pull request. Errors: ErrRefused for a 4xx status; any other error says nothing about the pull request.
func (c *Client) Open(ctx context.Context, repo, branch, title string) (PR, error) {
	body, err := json.Marshal(map[string]string{"branch": branch, "title": title})
	if err != nil {
		return PR{}, fmt.Errorf("%w: %w", ErrRefused, err) // not even sent
	}
	var pr PR
	status, err := c.do(ctx, http.MethodPost, "/repos/"+repo+"/pulls", bytes.NewReader(body), &pr)
	switch {
	case err != nil:
		return PR{}, err
	case status >= 400 && status < 500:
		return PR{}, fmt.Errorf("%w: status %d", ErrRefused, status)
	case status != http.StatusCreated:
		return PR{}, fmt.Errorf("%w %d", errStatus, status)
	}
	return pr, nil
}

// FindByBranch looks for the pull request of a branch; of several, for the first.
func (c *Client) FindByBranch(ctx context.Context, repo, branch string) (PR, bool, error) {
	var list []PR
	status, err := c.do(ctx, http.MethodGet, "/repos/"+repo+"/pulls?branch="+url.QueryEscape(branch), http.NoBody, &list)
	switch {
	case err != nil:
		return PR{}, false, err
	case status != http.StatusOK:
		return PR{}, false, fmt.Errorf("%w %d", errStatus, status)
	case len(list) == 0:
		return PR{}, false, nil
	}
	return list[0], true, nil
}

var errStatus = errors.New("prbot: the forge answered with status")

func (c *Client) do(ctx context.Context, method, path string, body io.Reader, into any) (int, error) {
	req, err := http.NewRequestWithContext(ctx, method, c.Base+path, body)
	if err != nil {
		return 0, err
	}
	client := c.HTTP
	if client == nil {
		client = http.DefaultClient
	}
	res, err := client.Do(req)
	if err != nil {
		return 0, err
	}
	defer res.Body.Close()
	text, err := io.ReadAll(io.LimitReader(res.Body, 1<<20))
	if err != nil || res.StatusCode >= 300 {
		return res.StatusCode, err
	}
	return res.StatusCode, json.Unmarshal(text, into)
}
