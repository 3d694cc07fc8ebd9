package main

import (
	"context"
	"encoding/json"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/credentials"
	"github.com/aws/aws-sdk-go-v2/service/cloudwatch"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"

	"toolledger/writers"
)

// emptyLedger has nothing overdue, or fails.
type emptyLedger struct {
	writers.DynamoDB
	err error
}

func (e emptyLedger) Query(context.Context, *dynamodb.QueryInput, ...func(*dynamodb.Options)) (*dynamodb.QueryOutput, error) {
	return &dynamodb.QueryOutput{}, e.err
}

type cloud struct {
	got  []*cloudwatch.PutMetricDataInput
	err  error
	mute bool // never answers
}

func (c *cloud) PutMetricData(ctx context.Context, in *cloudwatch.PutMetricDataInput, _ ...func(*cloudwatch.Options)) (*cloudwatch.PutMetricDataOutput, error) {
	c.got = append(c.got, in)
	if c.mute {
		<-ctx.Done()
		return nil, ctx.Err()
	}
	return &cloudwatch.PutMetricDataOutput{}, c.err
}

func env(pairs ...string) func(string) string {
	return func(name string) string {
		for i := 0; i < len(pairs); i += 2 {
			if pairs[i] == name {
				return pairs[i+1]
			}
		}
		return ""
	}
}

var awsConfig = aws.Config{Region: "eu-central-1", Credentials: credentials.NewStaticCredentialsProvider("id", "secret", "")}

// Promise: an environment that cannot be meant stops the function from starting, naming the variable.
func TestEnvironmentRefused(t *testing.T) {
	for name, tt := range map[string]struct {
		env  []string
		says string
	}{
		"no table":         {nil, "LEDGER_TABLE is not set"},
		"bad duration":     {[]string{"LEDGER_TABLE", "t", "SWEEP_GIVE_UP", "soon"}, "SWEEP_GIVE_UP"},
		"negative":         {[]string{"LEDGER_TABLE", "t", "LEDGER_SKEW", "-1s"}, "LEDGER_SKEW"},
		"long":             {[]string{"LEDGER_TABLE", "t", "SWEEP_RESERVE", "11m"}, "Reserve"},
		"verifiers":        {[]string{"LEDGER_TABLE", "t", "SWEEP_VERIFIERS", "f"}, "SWEEP_VERIFIERS"},
		"verifier's name":  {[]string{"LEDGER_TABLE", "t", "SWEEP_VERIFIERS", `{"a":""}`}, "functions"},
		"log level":        {[]string{"LEDGER_TABLE", "t", "LOG_LEVEL", "loud"}, "LOG_LEVEL"},
		"control is table": {[]string{"LEDGER_TABLE", "t", "LEDGER_CONTROL_TABLE", "t"}, "Control"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := newHandler(env(tt.env...), awsConfig, emptyLedger{}, &cloud{})
			if err == nil || !strings.Contains(err.Error(), tt.says) {
				t.Errorf("%v, want %q", err, tt.says)
			}
		})
	}
}

// Promise: a schedule's event of whatever kind starts a sweep, whose figures are published and answered; a sweep that
// cannot work fails the invocation, metrics that cannot be published do not.
func TestHandle(t *testing.T) {
	down := errors.New("access denied")
	for name, tt := range map[string]struct {
		env           []string
		table, metric error
		puts          int
		fails         bool
	}{
		"well":                {nil, nil, nil, 1, false},
		"own namespace":       {[]string{"METRICS_NAMESPACE", "Mine"}, nil, nil, 1, false},
		"no metrics":          {[]string{"METRICS_NAMESPACE", "-"}, nil, nil, 0, false},
		"metrics fail":        {nil, nil, down, 1, false},
		"table fails":         {nil, down, nil, 1, true},
		"with verifiers":      {[]string{"SWEEP_VERIFIERS", `{"book":"verify-book"}`, "SWEEP_GIVE_UP", "2h"}, nil, nil, 1, false},
		"all of the settings": {[]string{"LEDGER_KEEP", "720h", "LEDGER_SKEW", "1m", "SWEEP_RESERVE", "3s", "SWEEP_VERIFY_TIMEOUT", "4s"}, nil, nil, 1, false},
	} {
		t.Run(name, func(t *testing.T) {
			c := &cloud{err: tt.metric}
			h, err := newHandler(env(append(tt.env, "LEDGER_TABLE", "ledger", "LOG_LEVEL", "error")...), awsConfig, emptyLedger{err: tt.table}, c)
			if err != nil {
				t.Fatal(err)
			}
			report, err := h.handle(t.Context(), json.RawMessage(`{"detail-type":"Scheduled Event"}`))
			if tt.fails != (err != nil) || report.Complete == tt.fails {
				t.Errorf("%+v, %v", report, err)
			}
			if len(c.got) < tt.puts || len(c.got) > tt.puts && tt.metric == nil {
				t.Fatalf("%d calls of PutMetricData, want %d", len(c.got), tt.puts)
			}
			if tt.puts == 1 && len(c.got[0].MetricData) != 15 {
				t.Errorf("%d metrics", len(c.got[0].MetricData))
			}
			if name == "own namespace" && aws.ToString(c.got[0].Namespace) != "Mine" {
				t.Error(aws.ToString(c.got[0].Namespace))
			}
		})
	}
}

// Promise: a CloudWatch that does not answer cannot make a sweep that is done fail: the function answers before its time is up.
func TestHandleMuteCloudWatch(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h, err := newHandler(env("LEDGER_TABLE", "ledger", "LOG_LEVEL", "error"), awsConfig, emptyLedger{}, &cloud{mute: true})
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), 55*time.Second)
		defer cancel()
		began := time.Now()
		if report, err := h.handle(ctx, nil); err != nil || !report.Complete {
			t.Errorf("%+v, %v", report, err)
		}
		if took := time.Since(began); took > 5*time.Second {
			t.Errorf("took %s", took)
		}
	})
}
