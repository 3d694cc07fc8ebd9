package stack

import (
	"net/http"

	"github.com/aws/aws-sdk-go-v2/aws"
	awshttp "github.com/aws/aws-sdk-go-v2/aws/transport/http"
	"github.com/aws/aws-sdk-go-v2/credentials"
)

// What clients of the local stack use. Nobody checks the key: it is there because the SDK signs every request.
const (
	Region          = "us-east-1"
	AccessKeyID     = "local"
	SecretAccessKey = "local"
)

// idleConnections is how many connections a client keeps to the one host there is. With the SDK's 10, a storm of callers
// would open and close a connection per request.
const idleConnections = 256

// AWSConfig returns a configuration for clients of the local stack at endpoint. It reads nothing from the environment or
// the user's files, so that no real account can be reached by mistake.
func AWSConfig(endpoint string) aws.Config {
	cfg, _ := newConfig(endpoint)
	return cfg
}

// Environ returns the variables, as "NAME=value", that make a child process use the local stack at endpoint. They are the
// SDK's own.
func Environ(endpoint string) []string {
	return []string{
		"AWS_ENDPOINT_URL_DYNAMODB=" + endpoint,
		"AWS_ENDPOINT_URL_DYNAMODB_STREAMS=" + endpoint,
		"AWS_REGION=" + Region,
		"AWS_ACCESS_KEY_ID=" + AccessKeyID,
		"AWS_SECRET_ACCESS_KEY=" + SecretAccessKey,
	}
}

func newConfig(endpoint string) (aws.Config, *http.Transport) {
	transport := awshttp.NewBuildableClient().GetTransport()
	transport.Proxy = nil // the local stack is never behind one
	transport.MaxIdleConns, transport.MaxIdleConnsPerHost = idleConnections, idleConnections
	return aws.Config{
		Region:                    Region,
		Credentials:               credentials.NewStaticCredentialsProvider(AccessKeyID, SecretAccessKey, ""),
		BaseEndpoint:              aws.String(endpoint),
		HTTPClient:                &http.Client{Transport: transport},
		DisableRequestCompression: true,
	}, transport
}
