// Package writerstest helps to test tools against a real ledger on a local DynamoDB.
//
// [NewLedger] gives an empty ledger and a clock that the test moves. [ExactlyOnce] tries to make a tool act twice.
// [Balanced] checks the books. What stands in for DynamoDB is a program that has to be installed once; where it is not, tests
// are skipped and say how.
package writerstest
