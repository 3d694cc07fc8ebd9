// Package streams turns the table's own changes into audit events and metrics.
//
// # The way of one record
//
//  1. A stream record reaches a [Consumer]: in a Lambda batch (HandleBatch), or read by a [Poller] (HandleRecords).
//  2. [Derive] reads its keys, old image and new image, and says what they mean: a pure function, the second and
//     independent reading of the protocol that the writers follow. What no writer may do comes out as LedgerRowTampered.
//  3. A [Publisher] sends the events. Only then are the record's metrics counted, see [MetricSink].
//  4. What is not out by then is reported: to Lambda by the lowest failing sequence number, to the Poller by how far it
//     may move its checkpoint. It will be delivered again, with the same event ids.
//
// # What did not come through
//
// Records that failed and were kept elsewhere go through [Consumer.Redrive]. Where a stretch of stream is lost, [Rebuild] reads
// the tables and publishes, with the same ids, what they still know of it; [RebuildItem] says what they do not.
//
// # How often
//
// Every record is delivered at least once, so every event is published at least once, with one id. A record's metrics are
// counted once unless it is delivered again after it succeeded (a mapping that is re-created, a crash between counting
// and checkpointing).
package streams
