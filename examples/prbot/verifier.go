package prbot

import (
	"github.com/aws/aws-lambda-go/lambda"

	"toolledger/sweeper"
)

// Serve makes the tool's Verify a Lambda function, which the deployed sweeper asks before it gives a reservation back. It
// does not return.
func Serve(forge Forge) { lambda.Start(sweeper.VerifierHandler(New(forge))) }
