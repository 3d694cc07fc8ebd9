// Package api holds the ledger's front doors. Behind every door is the same protocol of package writers; a door only
// decides who the caller is, reads what it wants, and says what happened in the words of its own world.
//
// # HTTP
//
// [NewHandler] serves the operations of a session to any language: POST /v1/commit, /v1/reserve, /v1/finalize,
// /v1/release, /v1/extend and /v1/resolve, and GET /v1/calls, /v1/sessions/{session}/calls and /v1/quota. The document at
// /openapi.yaml describes every field, answer and refusal. Three rules hold throughout:
//
//   - The tenant is what HandlerConfig.Tenant says of the request, and is never read from a body, path or query.
//   - A request is either understood whole or refused whole: unknown fields, duplicate keys, wrong types and trailing data
//     are refused before anything is written, naming the field.
//   - A refusal, of a path that is not there too, is a problem document (RFC 9457) whose code is the writers.Code of the same
//     refusal in Go. Retry-After is there exactly when the same request may succeed soon; without it, repeating does not help,
//     except after internal_error, of which nobody knows.
//
// A request may be repeated as often as the network demands: the call key makes a repeat a replay, which the header
// Idempotent-Replayed: true tells apart. Long after its end a call is forgotten; a finalize that says what the call was, as reserve
// did, is recorded even then.
//
// A request waits for a call in flight up to MaxWait and never longer than leaves time to answer: a function that is to wait so long
// needs a timeout of 26 seconds or more.
//
// # Functions
//
// [Direct], [Bedrock] and [AgentCore] make the handlers of Lambda functions. Each is one door, for one kind of event, chosen
// by whoever deploys it: none looks at an event to find out which kind it is, and an event of another kind is a
// *[ShapeError]. Where the tenant comes from differs, and is the reason why doors are functions and roles of their own:
//
//	door       tenant                                               who may therefore invoke it
//	HTTP       what the authorizer verified                         the gateway
//	Direct     the event                                            trusted backends and workflows
//	Bedrock    a session attribute, set by the application          the agent
//	AgentCore  a header, set by a request interceptor               the gateway
//
// No door takes it from what a model wrote. Bedrock and AgentCore run the tools of a [Toolset] as Answer does; Direct
// offers the operations of the HTTP door.
//
// # Models
//
// [Toolset] turns typed tools into what a model may call: definitions with a JSON schema, and answers that tell the model
// what to do next.
package api
