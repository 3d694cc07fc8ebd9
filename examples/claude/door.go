package main

import (
	"errors"
	"net/http"
	"time"

	"github.com/aws/aws-lambda-go/lambda"

	"toolledger/writers"
	"toolledger/writers/api"
)

var errNoClaim = errors.New("the token has no tenant claim")

// serveHTTP is the ledger behind an HTTP server of one's own; claim reads the tenant from the verified token.
func serveHTTP(l *writers.Ledger, addr string, claim func(*http.Request) (string, bool)) error {
	h, err := api.NewHandler(l, api.HandlerConfig{Tenant: func(r *http.Request) (writers.TenantID, error) {
		tenant, ok := claim(r)
		if !ok {
			return "", errNoClaim
		}
		return writers.TenantID(tenant), nil
	}})
	if err != nil {
		return err
	}
	server := &http.Server{Addr: addr, Handler: h, ReadHeaderTimeout: 5 * time.Second, ReadTimeout: 30 * time.Second}
	return server.ListenAndServe()
}

// serveBedrock is the same tools as a Bedrock action group, whose model names the call's key in a parameter.
func serveBedrock(l *writers.Ledger, tools *api.Toolset) {
	lambda.Start(api.Bedrock(l, tools, func(string) string { return "idempotencyKey" }))
}

var _, _ = serveHTTP, serveBedrock // other mains start these
