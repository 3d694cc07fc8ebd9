package ops

import (
	"fmt"
	"slices"
	"strings"

	"toolledger/metrics"
)

// Namespaces of AWS's own metrics.
const (
	nsLambda   = "AWS/Lambda"
	nsDynamoDB = "AWS/DynamoDB"
	nsSQS      = "AWS/SQS"
	nsGateway  = "AWS/ApiGateway"
)

// Metric names one series of CloudWatch.
type Metric struct {
	Namespace  string // "" is the ledger's own
	Name       string
	Dimensions []Dimension // all of them, in the order of the list of known metrics: a subset names another series
}

// Dimension is one name and value; the value may hold references such as ${LedgerTable}.
type Dimension struct{ Name, Value string }

// awsMetric is a metric that an AWS service emits, with each set of dimensions that is used here.
type awsMetric struct {
	namespace, name string
	dimensions      [][]string
}

var (
	byFunction = [][]string{{"FunctionName"}}
	byMapping  = [][]string{{"EventSourceMappingUUID"}}
	byIndex    = [][]string{{"TableName"}, {"TableName", "GlobalSecondaryIndexName"}}
)

// awsMetrics are AWS's own metrics that may be named. The functions' metrics by FunctionName alone cover all versions and
// aliases. Those of a mapping exist only where its MetricsConfig asks for EventCount.
var awsMetrics = []awsMetric{
	{nsLambda, "Invocations", byFunction},
	{nsLambda, "Errors", byFunction},
	{nsLambda, "Throttles", byFunction},
	{nsLambda, "Duration", byFunction},
	{nsLambda, "IteratorAge", byFunction},
	{nsLambda, "DestinationDeliveryFailures", byFunction},
	{nsLambda, "DroppedEventCount", byMapping},
	{nsLambda, "OnFailureDestinationDeliveredEventCount", byMapping},
	{nsDynamoDB, "ConsumedWriteCapacityUnits", byIndex},
	{nsDynamoDB, "ConsumedReadCapacityUnits", byIndex},
	{nsDynamoDB, "WriteThrottleEvents", byIndex},
	{nsDynamoDB, "TransactionConflict", [][]string{{"TableName"}}},
	{nsDynamoDB, "SuccessfulRequestLatency", [][]string{{"TableName", "Operation"}}},
	{nsSQS, "ApproximateNumberOfMessagesVisible", [][]string{{"QueueName"}}},
	{nsGateway, "5xx", [][]string{{"ApiId"}}},
	{nsGateway, "Count", [][]string{{"ApiId"}}},
	{nsGateway, "Latency", [][]string{{"ApiId"}}},
}

// own names the total of one of the ledger's metrics.
func own(name string) Metric { return Metric{Name: name} }

func function(name, resource string) Metric {
	return Metric{nsLambda, name, []Dimension{{"FunctionName", "${" + resource + "}"}}}
}

func mapping(name, resource string) Metric {
	return Metric{nsLambda, name, []Dimension{{"EventSourceMappingUUID", "${" + resource + "}"}}}
}

func table(name, resource string) Metric {
	return Metric{nsDynamoDB, name, []Dimension{{"TableName", "${" + resource + "}"}}}
}

// pendingIndex is the index that reservations are found by.
const pendingIndex = "PendingByDeadline"

func index(name string) Metric {
	return Metric{nsDynamoDB, name, []Dimension{{"TableName", "${LedgerTable}"}, {"GlobalSecondaryIndexName", pendingIndex}}}
}

func queue(resource string) Metric {
	return Metric{nsSQS, "ApproximateNumberOfMessagesVisible", []Dimension{{"QueueName", "${" + resource + ".QueueName}"}}}
}

func api(name string) Metric { return Metric{nsGateway, name, []Dimension{{"ApiId", "${HttpApi}"}}} }

// ownNamespace is a stack's own: stacks that share an account and Region must not hide each other's silence.
const ownNamespace = metrics.DefaultNamespace + "/${AWS::StackName}"

// namespace is the metric's, the ledger's own spelt out.
func (m Metric) namespace() string {
	if m.Namespace == "" {
		return ownNamespace
	}
	return m.Namespace
}

// known tells whether somebody emits the metric with exactly these dimensions. Errors: ErrUnknownMetric.
func (m Metric) known(defined []metrics.Definition) error {
	names := make([]string, len(m.Dimensions))
	for i, d := range m.Dimensions {
		names[i] = d.Name
		if d.Value == "" {
			return fmt.Errorf("%w: %s has no value for dimension %s", ErrUnknownMetric, m.Name, d.Name)
		}
	}
	var sets [][]string
	if m.Namespace == "" {
		for _, d := range defined {
			if d.Name == m.Name {
				sets = append(sets, nil)
				for _, dimension := range d.Dimensions {
					sets = append(sets, []string{dimension})
				}
			}
		}
	} else {
		for _, a := range awsMetrics {
			if a.namespace == m.Namespace && a.name == m.Name {
				sets = a.dimensions
			}
		}
	}
	if len(sets) == 0 {
		return fmt.Errorf("%w: nobody emits %s %s", ErrUnknownMetric, m.namespace(), m.Name)
	}
	if !slices.ContainsFunc(sets, func(set []string) bool { return slices.Equal(set, names) }) {
		return fmt.Errorf("%w: %s %s is not emitted with the dimensions [%s]", ErrUnknownMetric, m.namespace(), m.Name, strings.Join(names, " "))
	}
	return nil
}

// statistic is how the ledger's metric of this name is meant to be read.
func statistic(defined []metrics.Definition, name string) string {
	for _, d := range defined {
		if d.Name == name {
			return d.Statistic
		}
	}
	return ""
}
