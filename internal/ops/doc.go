// Package ops says what an operations team looks at: the dashboard and the alarms, as data.
//
// Everything is named in the syntax of CloudFormation's Fn::Sub – ${LedgerTable}, ${AWS::Region} – since the template is
// where it is used: package main in gen writes it between markers of template.yaml. [Body.Expand] puts names in where
// there is no template.
//
// A metric is either one of metrics.Definitions, in the ledger's own namespace and with exactly the dimensions that the
// code emits, or one of the list of AWS's own metrics in this package; [Check] refuses anything else, and with it alarms
// that could never go off.
package ops

// The template holds the schemas of the events, so they come first.
//go:generate go generate ../../streams/events/schemas
//go:generate go run ./gen ../../template.yaml
