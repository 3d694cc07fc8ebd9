// Package model is the ledger of the protocol in memory: rows, quotas, sessions, observations and plans, and what every
// operation answers and leaves behind. It is written from the protocol's text, shares no code with the packages that it
// judges, and knows neither DynamoDB nor concurrency: one operation after the other, each whole.
//
// Some things the protocol leaves open: row ids are random, and which shards pay is a choice within rules. There the model
// looks at what the table has (a witness), checks that the choice was one of those allowed, and takes it over; what was not
// allowed is a fault. Everything else it computes, and the table has to agree, attribute by attribute.
package model
