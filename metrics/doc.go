// Package metrics says what is measured, adds it up and sends it.
//
// What is measured is data: see [Definitions]. Whoever emits a metric uses one of the names defined there, and README,
// dashboard and alarms are made from the same list.
//
// A [Datum] is one measurement with the time of the record it was made on. An [Aggregator] adds data up per minute of that
// time, as totals without dimensions and as series of the busiest tenants. [CloudWatch] and [EMF] send the sums.
package metrics
