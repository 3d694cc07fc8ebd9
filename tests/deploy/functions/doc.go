// Package functions proves that each Lambda function works as Lambda runs it: the built binary under AWS's own runtime
// interface emulator, in an empty environment, with events as the services send them. It is the fifth rung of the proof of
// the deployment; golden events are in ../testdata/events.
//
// DynamoDB is the local stack's. EventBridge, CloudWatch and S3 are a server of the test: what the functions send there is
// looked at, and the test decides what fails. Real time-outs, crashes and the end of an environment are done to the process
// itself.
package functions
