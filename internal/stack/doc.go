// Package stack runs the local stand-in for DynamoDB and DynamoDB Streams, dynoxide, as a child process: for the command
// line's default and for tests. The child ends with this process, however this process ends.
//
// What runs against it is told where it is by [AWSConfig], or by the variables of [Environ], which are the SDK's own:
// on AWS nothing is swapped but the endpoint. Library packages never import this one.
package stack

// Version is the version of dynoxide that is pinned for every platform under npm/.
const Version = "1.2.1"
