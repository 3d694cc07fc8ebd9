package checks

import (
	"context"
	"net/http"
	"strings"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/apigatewayv2"
	"github.com/aws/aws-sdk-go-v2/service/apigatewayv2/types"
)

// front checks that the HTTP API asks everybody who they are.
func (r *run) front(ctx context.Context) {
	const group = "front"
	api := r.stack.ids["HttpApi"]
	if api == "" {
		r.add(group, "HttpApi", Skipped, "this stack has none")
		return
	}
	in := &apigatewayv2.GetRoutesInput{ApiId: &api}
	routes := 0
	for range maxPages {
		page, err := r.cfg.Clients.API.GetRoutes(ctx, in)
		if err != nil {
			r.add(group, "routes", Failed, "%v", err)
			return
		}
		for _, route := range page.Items {
			routes++
			r.route(ctx, api, route)
		}
		if in.NextToken = page.NextToken; in.NextToken == nil {
			break
		}
	}
	r.must(group, "routes", routes > 0, "the API has none")
	r.strangers(ctx)
}

// route checks what a route asks for. Plans are for IAM callers only.
func (r *run) route(ctx context.Context, api string, route types.Route) {
	const group = "front"
	key := aws.ToString(route.RouteKey)
	plan := strings.HasSuffix(key, "/plan")
	switch route.AuthorizationType {
	case types.AuthorizationTypeAwsIam:
		r.add(group, key, OK, "")
		return
	case types.AuthorizationTypeJwt:
		if plan {
			r.add(group, key, Failed, "whoever has a token sets plans")
			return
		}
	default:
		r.add(group, key, Failed, "its authorization is %q: it asks nobody who they are", route.AuthorizationType)
		return
	}
	out, err := r.cfg.Clients.API.GetAuthorizer(ctx, &apigatewayv2.GetAuthorizerInput{ApiId: &api, AuthorizerId: route.AuthorizerId})
	if err != nil {
		r.add(group, key, Failed, "%v", err)
		return
	}
	jwt := out.JwtConfiguration
	r.must(group, key, jwt != nil && aws.ToString(jwt.Issuer) != "" && len(jwt.Audience) > 0,
		"its authorizer takes tokens of any issuer or for any audience")
}

// strangers are callers whom the API must turn away before any function sees them.
func (r *run) strangers(ctx context.Context) {
	const group = "front"
	url := r.cfg.URL
	if url == "" {
		url = r.stack.outputs["HttpApiUrl"]
	}
	for name, header := range map[string]string{
		"a request without credentials": "", "a request with a made-up token": "Bearer e30.e30.e30",
		"a request with a made-up signature": "AWS4-HMAC-SHA256 Credential=AKIAMADEUP/20260101/us-east-1/execute-api/aws4_request, SignedHeaders=host, Signature=00",
	} {
		for _, path := range []string{"/v1/quota", "/v1/tenants/verify/plan"} {
			method := http.MethodGet
			if strings.HasSuffix(path, "/plan") {
				method = http.MethodPut
			}
			status, err := r.stranger(ctx, method, url+path, header)
			if err != nil {
				r.add(group, name+" "+path, Failed, "%v", err)
				continue
			}
			refused := status == http.StatusUnauthorized || status == http.StatusForbidden || status == http.StatusNotFound && method == http.MethodPut
			r.must(group, name+" "+path, refused, "it was answered %d", status)
		}
	}
}

func (r *run) stranger(ctx context.Context, method, url, authorization string) (int, error) {
	req, err := http.NewRequestWithContext(ctx, method, url, http.NoBody)
	if err != nil {
		return 0, err
	}
	if authorization != "" {
		req.Header.Set("Authorization", authorization)
	}
	res, err := r.cfg.Clients.HTTP.Do(req)
	if err != nil {
		return 0, err
	}
	return res.StatusCode, res.Body.Close()
}
