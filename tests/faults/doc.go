// Package faults does to a DynamoDB client what no stand-in does: it loses answers, refuses, delays, and lets the calling
// process die, at requests that the test chooses.
//
// # Where
//
// An [Injector] has a [Hook], which sees every request as an [Event] and answers with a [Fault]; the zero Fault lets the
// request pass. There are two levels:
//
//   - Call: once per call of the client, outside the SDK's retries. What happens here the caller sees.
//   - Try: once per HTTP request, inside the SDK's retries. Service errors are sent through the SDK's own decoding, lost
//     answers are broken connections, and a retry carries the same client request token.
//
// [Injector.Attach] puts both levels into a real SDK client:
//
//	in := faults.New(faults.At(faults.Try, "TransactWriteItems", 1, faults.Lose()))
//	db := dynamodb.NewFromConfig(cfg, in.Attach, faults.Quick)
//
// [Injector.Wrap] puts the Call level around any client that a Ledger takes.
//
// # What
//
//	Fail(err)   the request is never sent
//	Lose()      the request is applied, its answer is lost
//	Hang()      never sent; the caller waits until its context ends
//	Stall()     applied; the caller waits until its context ends
//	Crash()     the process dies before the request is sent
//	CrashAfter() the process dies after the request was applied, before it sees the answer
//
// Each can carry a function that runs first ([Fault.Before]) or once the request was applied ([Fault.After]): that is how a
// test lets somebody else act at exactly that moment.
//
// # Death
//
// A process that dies runs nothing any more. Here, the goroutine that made the request ends (runtime.Goexit), and so does
// every other one that makes a request through the same Injector from then on: deferred calls may still run, but nothing
// that they do reaches the table. Run such code with [Injector.Run], which tells whether it came to its end.
package faults
