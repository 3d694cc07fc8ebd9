package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/s3"

	"toolledger/metrics"
	"toolledger/sweeper"
	"toolledger/writers"
	"toolledger/writers/results"
)

const noMetrics = "-"

// publishTime is less than what a sweep leaves of the invocation by default: a CloudWatch that does not answer must not make a
// sweep that is done look like one that was killed.
const publishTime = 3 * time.Second

type handler struct {
	sweeper *sweeper.Sweeper
	cloud   *metrics.CloudWatch // nil: publish none
	log     *slog.Logger
}

// newHandler reads the environment and checks it before the first event: a sweeper that cannot work says so when it is
// deployed, not at night.
func newHandler(getenv func(string) string, cfg aws.Config, db writers.DynamoDB, cloud metrics.CloudWatchClient) (*handler, error) {
	log, err := newLogger(getenv("LOG_LEVEL"))
	if err != nil {
		return nil, err
	}
	if getenv("LEDGER_TABLE") == "" {
		return nil, errors.New("LEDGER_TABLE is not set: name the ledger table")
	}
	durations := map[string]time.Duration{}
	for _, name := range []string{"LEDGER_KEEP", "LEDGER_SKEW", "SWEEP_GIVE_UP", "SWEEP_RESERVE", "SWEEP_VERIFY_TIMEOUT"} {
		if durations[name], err = duration(name, getenv(name)); err != nil {
			return nil, err
		}
	}
	c := writers.Config{
		Table: getenv("LEDGER_TABLE"), Control: getenv("LEDGER_CONTROL_TABLE"), Keep: durations["LEDGER_KEEP"],
		Skew: durations["LEDGER_SKEW"], Logger: log,
	}
	if bucket := getenv("RESULT_BUCKET"); bucket != "" {
		if c.Results, err = results.NewS3(s3.NewFromConfig(cfg), bucket, ""); err != nil {
			return nil, fmt.Errorf("RESULT_BUCKET: %w", err)
		}
	}
	ledger, err := writers.New(db, c)
	if err != nil {
		return nil, err
	}
	remote, err := verifiers(lambdaConfig(cfg, getenv), getenv("SWEEP_VERIFIERS"))
	if err != nil {
		return nil, err
	}
	s, err := sweeper.New(ledger, sweeper.Config{
		Remote: remote, GiveUp: durations["SWEEP_GIVE_UP"], Reserve: durations["SWEEP_RESERVE"],
		VerifyTimeout: durations["SWEEP_VERIFY_TIMEOUT"],
	})
	if err != nil {
		return nil, err
	}
	h := &handler{sweeper: s, log: log}
	if namespace := getenv("METRICS_NAMESPACE"); namespace != noMetrics {
		h.cloud, err = metrics.NewCloudWatch(cloud, metrics.CloudWatchConfig{Namespace: namespace, Logger: log})
	}
	return h, err
}

func duration(name, value string) (time.Duration, error) {
	if value == "" {
		return 0, nil
	}
	d, err := time.ParseDuration(value)
	if err != nil || d <= 0 {
		return 0, fmt.Errorf("%s %q: want a duration such as 90s or 2h", name, value)
	}
	return d, nil
}

func verifiers(cfg aws.Config, value string) (func(context.Context, sweeper.VerifyRequest) (sweeper.VerifyAnswer, error), error) {
	if value == "" {
		return nil, nil
	}
	var byTool map[string]string
	if err := json.Unmarshal([]byte(value), &byTool); err != nil {
		return nil, errors.New(`SWEEP_VERIFIERS: want a JSON object such as {"open_pr": "verify-open-pr"}`)
	}
	return sweeper.Functions(cfg, byTool)
}

// handle sweeps once. An invocation fails where sweeping cannot work; what merely is left for the next minute is no
// failure. Figures are published in both cases, and failing to publish them fails nothing: an alarm watches for figures
// that do not come.
func (h *handler) handle(ctx context.Context, _ json.RawMessage) (sweeper.Report, error) {
	report, err := h.sweeper.Run(ctx)
	if h.cloud != nil {
		publishing, cancel := context.WithTimeout(context.WithoutCancel(ctx), publishTime)
		defer cancel()
		if perr := h.cloud.Record(publishing, report.Metrics()); perr != nil {
			h.log.LogAttrs(ctx, slog.LevelError, "metrics of the sweep not published", slog.Any("error", perr))
		}
	}
	return report, err
}
