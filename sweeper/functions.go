package sweeper

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	v4 "github.com/aws/aws-sdk-go-v2/aws/signer/v4"
	awshttp "github.com/aws/aws-sdk-go-v2/aws/transport/http"

	"toolledger/writers"
)

// Functions is a Config.Remote that asks Lambda functions made with [VerifierHandler]: byTool names the function of each
// tool (name, name:alias or ARN). A tool that is not in byTool has no verifier. cfg gives Region, Credentials and, where
// it is not AWS itself, BaseEndpoint; asking takes lambda:InvokeFunction on these functions.
//
// A question is sent once: the next sweep is the retry. An answer counts only where the function ended well.
//
// Errors: writers.ErrInvalid. Those of the Remote: ErrNoVerifier, ErrVerifier for a function that failed or answered
// something else, the transport's, ctx's.
func Functions(cfg aws.Config, byTool map[string]string) (func(context.Context, VerifyRequest) (VerifyAnswer, error), error) {
	for tool, function := range byTool {
		if tool == "" || function == "" || strings.ContainsAny(function, "/?# ") {
			return nil, invalid("functions", "must map names of tools to names or ARNs of functions")
		}
	}
	if len(byTool) > 0 && (cfg.Region == "" || cfg.Credentials == nil) {
		return nil, invalid("functions", "need a Region and Credentials to be asked")
	}
	f := &functions{cfg: cfg, byTool: byTool, client: cfg.HTTPClient, signer: v4.NewSigner(), now: time.Now} //nolint:forbidigo // AWS compares signatures with its own clock
	if f.client == nil {
		f.client = awshttp.NewBuildableClient()
	}
	return f.ask, nil
}

type functions struct {
	cfg    aws.Config
	byTool map[string]string
	client aws.HTTPClient
	signer *v4.Signer
	now    func() time.Time
}

// maxAnswer is the most that a function can answer (Lambda's own limit) and a little for the envelope.
const maxAnswer = 6<<20 + 1<<10

func (f *functions) ask(ctx context.Context, question VerifyRequest) (VerifyAnswer, error) {
	function, ok := f.byTool[question.Tool]
	if !ok {
		return VerifyAnswer{}, ErrNoVerifier
	}
	body, err := json.Marshal(question)
	if err != nil {
		return VerifyAnswer{}, err
	}
	req, err := f.request(ctx, function, body)
	if err != nil {
		return VerifyAnswer{}, err
	}
	res, err := f.client.Do(req)
	if err != nil {
		return VerifyAnswer{}, err
	}
	defer res.Body.Close()
	payload, err := io.ReadAll(io.LimitReader(res.Body, maxAnswer))
	if err != nil {
		return VerifyAnswer{}, err
	}
	if res.StatusCode != http.StatusOK || res.Header.Get("X-Amz-Function-Error") != "" {
		return VerifyAnswer{}, fmt.Errorf("%w: function %s answered status %d, error %q", ErrVerifier, function, res.StatusCode,
			res.Header.Get("X-Amz-Function-Error"))
	}
	return decodeAnswer(payload)
}

// request is a signed Invoke of the Lambda API, version 2015-03-31.
func (f *functions) request(ctx context.Context, function string, body []byte) (*http.Request, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost,
		f.endpoint()+"/2015-03-31/functions/"+url.PathEscape(function)+"/invocations", bytes.NewReader(body))
	if err != nil {
		return nil, err
	}
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("X-Amz-Invocation-Type", "RequestResponse")
	credentials, err := f.cfg.Credentials.Retrieve(ctx)
	if err != nil {
		return nil, err
	}
	sum := sha256.Sum256(body)
	err = f.signer.SignHTTP(ctx, credentials, req, hex.EncodeToString(sum[:]), "lambda", f.cfg.Region, f.now())
	return req, err
}

func (f *functions) endpoint() string {
	if base := aws.ToString(f.cfg.BaseEndpoint); base != "" {
		return strings.TrimSuffix(base, "/")
	}
	domain := "amazonaws.com"
	if strings.HasPrefix(f.cfg.Region, "cn-") {
		domain += ".cn"
	}
	return "https://lambda." + f.cfg.Region + "." + domain
}

// decodeAnswer reads an answer strictly: what is not understood counts as unknown.
func decodeAnswer(payload []byte) (VerifyAnswer, error) {
	var a VerifyAnswer
	dec := json.NewDecoder(bytes.NewReader(payload))
	dec.DisallowUnknownFields()
	if err := dec.Decode(&a); err != nil {
		return VerifyAnswer{}, fmt.Errorf("%w: answer: %s", ErrVerifier, decodeFault(err))
	}
	if _, err := dec.Token(); !errors.Is(err, io.EOF) {
		return VerifyAnswer{}, fmt.Errorf("%w: answer: must be one JSON object", ErrVerifier)
	}
	if _, verdict, err := a.read(); err != nil {
		return VerifyAnswer{}, err
	} else if verdict != writers.EffectApplied && len(a.Result) > 0 {
		return VerifyAnswer{}, fmt.Errorf("%w: answer: only applied has a result", ErrVerifier)
	}
	return a, nil
}
