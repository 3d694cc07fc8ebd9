package checks

import (
	"context"
	"encoding/json"
	"reflect"
	"slices"
	"strings"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/cloudwatch"
	cloudwatchtypes "github.com/aws/aws-sdk-go-v2/service/cloudwatch/types"
	"github.com/aws/aws-sdk-go-v2/service/lambda"
	"github.com/aws/aws-sdk-go-v2/service/lambda/types"
)

// sessionFilter passes all records but those of sessions.
const sessionFilter = `{"dynamodb":{"Keys":{"sk":{"S":[{"anything-but":["META"]}]}}}}`

// streamDay is how long a stream keeps a record: what a mapping still retries then is lost.
const streamDay = 24 * time.Hour

// mappings looks at how Lambda reads the tables' streams.
func (r *run) mappings(ctx context.Context) {
	const group = "mappings"
	function := r.stack.outputs["StreamFunctionName"]
	if function == "" {
		r.add(group, "stream function", Failed, "the stack has no output StreamFunctionName")
		return
	}
	all, err := r.listMappings(ctx, function)
	if err != nil {
		r.add(group, "list", Failed, "%v", err)
		return
	}
	for _, table := range []string{"LedgerTableName", "ControlTableName"} {
		name := r.stack.outputs[table]
		at := slices.IndexFunc(all, func(m types.EventSourceMappingConfiguration) bool {
			return strings.Contains(aws.ToString(m.EventSourceArn), ":table/"+name+"/stream/")
		})
		if at < 0 {
			r.add(group, table, Failed, "no mapping reads the stream of %s", name)
			continue
		}
		r.mapping(table, all[at])
		if table == "LedgerTableName" {
			r.filter(ctx, all[at])
		}
	}
}

// listMappings lists those of a function, whether they name it or an alias of it.
func (r *run) listMappings(ctx context.Context, function string) ([]types.EventSourceMappingConfiguration, error) {
	var all []types.EventSourceMappingConfiguration
	for _, name := range []string{function, function + ":live"} {
		in := &lambda.ListEventSourceMappingsInput{FunctionName: aws.String(name)}
		for range maxPages {
			page, err := r.cfg.Clients.Lambda.ListEventSourceMappings(ctx, in)
			if err != nil {
				return nil, err
			}
			all = append(all, page.EventSourceMappings...)
			if in.Marker = page.NextMarker; aws.ToString(in.Marker) == "" {
				break
			}
		}
	}
	return all, nil
}

// mapping checks that one bad record cannot hold up its shard, and is kept.
func (r *run) mapping(table string, m types.EventSourceMappingConfiguration) {
	const group = "mappings"
	r.must(group, table+" is enabled", aws.ToString(m.State) == "Enabled", "its state is %q, reason %q", aws.ToString(m.State), aws.ToString(m.StateTransitionReason))
	r.must(group, table+" reports partial failures", slices.Contains(m.FunctionResponseTypes, types.FunctionResponseTypeReportBatchItemFailures),
		"ReportBatchItemFailures is off: one bad record redelivers, and recounts, its whole batch")
	r.must(group, table+" bisects", aws.ToBool(m.BisectBatchOnFunctionError), "BisectBatchOnFunctionError is off")
	retries, age := aws.ToInt32(m.MaximumRetryAttempts), aws.ToInt32(m.MaximumRecordAgeInSeconds)
	r.must(group, table+" gives up", m.MaximumRetryAttempts != nil && m.MaximumRecordAgeInSeconds != nil && retries >= 0 && age > 0 && time.Duration(age)*time.Second < streamDay,
		"retries %d, age %d s: one bad record blocks its shard until the stream forgets it", retries, age)
	destination := ""
	if m.DestinationConfig != nil && m.DestinationConfig.OnFailure != nil {
		destination = aws.ToString(m.DestinationConfig.OnFailure.Destination)
	}
	bucket := r.stack.outputs["FailureBucketName"]
	r.must(group, table+" keeps what failed", bucket != "" && strings.HasSuffix(destination, ":s3:::"+bucket),
		"its failure destination is %q, not the bucket %q: only a bucket gets the records too", destination, bucket)
}

// filter checks that session records are left out, by the pattern and by what Lambda has counted.
func (r *run) filter(ctx context.Context, m types.EventSourceMappingConfiguration) {
	const group = "mappings"
	var patterns []string
	if m.FilterCriteria != nil {
		for _, f := range m.FilterCriteria.Filters {
			patterns = append(patterns, aws.ToString(f.Pattern))
		}
	}
	r.must(group, "the filter is the template's", len(patterns) == 1 && sameJSON(patterns[0], sessionFilter), "the filters are %q", patterns)
	n, err := r.filteredOut(ctx, aws.ToString(m.UUID))
	switch {
	case err != nil:
		r.add(group, "the filter filters", Failed, "%v", err)
	case n > 0:
		r.add(group, "the filter filters", OK, "%.0f records in a day", n)
	default:
		r.add(group, "the filter filters", Unknown, "no record was filtered out in a day: write with a cursor, which changes a session, and look again in some minutes")
	}
}

// filteredOut is how many records a mapping has left out within a day.
func (r *run) filteredOut(ctx context.Context, mapping string) (float64, error) {
	now := r.cfg.Now()
	out, err := r.cfg.Clients.CloudWatch.GetMetricStatistics(ctx, &cloudwatch.GetMetricStatisticsInput{
		Namespace: aws.String("AWS/Lambda"), MetricName: aws.String("FilteredOutEventCount"), Statistics: []cloudwatchtypes.Statistic{cloudwatchtypes.StatisticSum},
		Dimensions: []cloudwatchtypes.Dimension{{Name: aws.String("EventSourceMappingUUID"), Value: &mapping}},
		StartTime:  aws.Time(now.Add(-streamDay)), EndTime: &now, Period: aws.Int32(3600),
	})
	if err != nil {
		return 0, err
	}
	sum := 0.0
	for _, p := range out.Datapoints {
		sum += aws.ToFloat64(p.Sum)
	}
	return sum, nil
}

func sameJSON(a, b string) bool {
	var x, y any
	return json.Unmarshal([]byte(a), &x) == nil && json.Unmarshal([]byte(b), &y) == nil && reflect.DeepEqual(x, y)
}
