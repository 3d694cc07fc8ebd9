// Package picture draws a dashboard as CloudWatch would show it, from points of metrics that were collected on this
// machine: the same widgets, titles, series and places.
//
// What only AWS measures – functions, tables, queues – has no points here, and its graphs say so.
package picture
