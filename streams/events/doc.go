// Package events holds the events that toolledger publishes to EventBridge. It imports the standard library only, so
// that subscribers need nothing else.
//
// A subscriber hands what it was delivered to [Parse] and switches over the type of the result:
//
//	ev, err := events.Parse(envelope)
//	switch e := ev.(type) {
//	case *events.ToolEffectApplied:
//		…
//	case *events.Unknown: // newer than this program
//	}
//
// EventBridge delivers at least once and in no order. Header.ID is equal on every delivery of one event: deduplicate by
// it. Header.RowID and Header.Version order the events of one entity: an event with a lower version than the one already
// seen tells of an earlier moment.
//
// For other languages, and for EventBridge's schema registry, package schemas holds a JSON Schema and an OpenAPI 3.0 document
// of each event. Whoever changes a type here runs go generate ./... after it.
//
// No event holds arguments, lookups or results of a tool call, only hashes and sizes.
package events
