// Command lambda is the function behind the stream's event source mapping: it publishes the table's changes to EventBridge
// and counts them in CloudWatch.
//
// Environment: EVENT_BUS (required; name or ARN), FAILURE_BUCKET (an S3 bucket; default none), METRICS_NAMESPACE (default
// ToolLedger), METRICS_SINK (cloudwatch, emf or none; default cloudwatch), METRICS_TENANTS (how many tenants get series of their
// own; default 50, -1 for none), LOG_LEVEL (debug, info, warn, error; default info). Endpoints, Region and credentials come from
// the SDK's own variables.
//
// A record that cannot be understood is kept in FAILURE_BUCKET under unreadable/, an event that the bus refuses for good under
// refused/, and the shard moves on. Without a bucket such a record fails the batch at its sequence number until the mapping's
// retries end in its on-failure destination, and such an event is only logged.
package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"strconv"

	"github.com/aws/aws-lambda-go/lambda"
	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/config"
	"github.com/aws/aws-sdk-go-v2/service/cloudwatch"
	"github.com/aws/aws-sdk-go-v2/service/eventbridge"
	"github.com/aws/aws-sdk-go-v2/service/s3"

	"toolledger/metrics"
	"toolledger/streams"
)

func main() {
	logger, err := newLogger(os.Getenv("LOG_LEVEL"))
	if err == nil {
		var consumer *streams.Consumer
		if consumer, err = wire(context.Background(), os.Getenv, logger); err == nil {
			lambda.Start(consumer.HandleBatch)
			return
		}
	}
	fmt.Fprintln(os.Stderr, "streams/lambda:", err)
	os.Exit(1)
}

func newLogger(level string) (*slog.Logger, error) {
	var l slog.Level
	if level != "" {
		if err := l.UnmarshalText([]byte(level)); err != nil {
			return nil, errors.New("LOG_LEVEL must be debug, info, warn or error")
		}
	}
	return slog.New(slog.NewJSONHandler(os.Stderr, &slog.HandlerOptions{Level: l})), nil
}

// wire builds the consumer from the environment.
func wire(ctx context.Context, env func(string) string, logger *slog.Logger) (*streams.Consumer, error) {
	bus := env("EVENT_BUS")
	if bus == "" {
		return nil, errors.New("EVENT_BUS is required: the name or ARN of the event bus")
	}
	cfg, err := config.LoadDefaultConfig(ctx)
	if err != nil {
		return nil, fmt.Errorf("load AWS configuration: %w", err)
	}
	sink, err := newSink(cfg, env, logger)
	if err != nil {
		return nil, err
	}
	publishing := streams.PublisherConfig{Bus: bus, Metrics: sink, Logger: logger}
	consuming := streams.ConsumerConfig{Metrics: sink, Logger: logger}
	if bucket := env("FAILURE_BUCKET"); bucket != "" {
		k := &keeper{s3.NewFromConfig(cfg), bucket}
		publishing.Refused, consuming.Unreadable = k.event, k.record
	}
	publisher, err := streams.NewEventBridgePublisher(eventbridge.NewFromConfig(cfg), publishing)
	if err != nil {
		return nil, err
	}
	consuming.Publisher = publisher
	return streams.NewConsumer(consuming)
}

func newSink(cfg aws.Config, env func(string) string, logger *slog.Logger) (streams.MetricSink, error) {
	tenants := 0
	if text := env("METRICS_TENANTS"); text != "" {
		n, err := strconv.Atoi(text)
		if err != nil || n < -1 || n == 0 {
			return nil, errors.New("METRICS_TENANTS must be a number above 0, or -1")
		}
		tenants = n
	}
	namespace := env("METRICS_NAMESPACE")
	switch kind := env("METRICS_SINK"); kind {
	case "", "cloudwatch":
		sink, err := metrics.NewCloudWatch(cloudwatch.NewFromConfig(cfg), metrics.CloudWatchConfig{
			Namespace: namespace, Tenants: tenants, Logger: logger,
		})
		if err != nil {
			return nil, fmt.Errorf("METRICS_NAMESPACE: %w", err)
		}
		return sink, nil
	case "emf":
		sink, err := metrics.NewEMF(metrics.EMFConfig{Out: os.Stdout, Namespace: namespace, Tenants: tenants})
		if err != nil {
			return nil, fmt.Errorf("METRICS_NAMESPACE: %w", err)
		}
		return sink, nil
	case "none":
		return nil, nil
	default:
		return nil, errors.New("METRICS_SINK must be cloudwatch, emf or none")
	}
}
