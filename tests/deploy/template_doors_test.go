package deploy_test

import (
	"slices"
	"strings"
)

// doorRules: nobody comes in unauthenticated, and what subscribers and operators need is said in the outputs.
func doorRules() []rule {
	return []rule{
		{"HTTP routes", routes},
		{"HTTP stages", func(v *view, bad report) {
			for _, s := range v.of("AWS::ApiGatewayV2::Stage") {
				settings := child(s.props, "DefaultRouteSettings")
				if number(settings["ThrottlingRateLimit"]) < 1 || number(settings["ThrottlingBurstLimit"]) < 1 {
					bad("%s: no throttling", s.id)
				}
				log := child(s.props, "AccessLogSettings")
				if g := v.target(log["DestinationArn"]); log["DestinationArn"] != nil && (g == nil || g.kind != "AWS::Logs::LogGroup") {
					bad("%s: logs to %v", s.id, log["DestinationArn"])
				}
				for _, secret := range []string{"authorizer.claims", "$context.authorizer.principalId", "$context.identity.user", "querystring"} {
					if strings.Contains(str(log["Format"]), secret) {
						bad("%s: logs %s", s.id, secret)
					}
				}
			}
		}},
		{"invoke permissions", invokePermissions},
		{"outputs", outputs},
	}
}

// routes: each has an authorizer, calls a function by its alias and leaves it time to answer.
func routes(v *view, bad report) {
	open := v.params["HttpAuth"] == "jwt" || v.params["HttpAuth"] == "iam" || str(v.params["AdminRoles"]) != ""
	if apis := v.of("AWS::ApiGatewayV2::Api"); (len(apis) == 1) != open {
		bad("%d HTTP APIs although the parameters say %v", len(apis), open)
	}
	for _, r := range v.of("AWS::ApiGatewayV2::Route") {
		auth := str(r.props["AuthorizationType"])
		switch auth {
		case "JWT":
			a := v.target(r.props["AuthorizerId"])
			if a == nil || a.props["AuthorizerType"] != "JWT" || str(dig(a.props, "JwtConfiguration", "Issuer")) == "" || len(list(dig(a.props, "JwtConfiguration", "Audience"))) == 0 {
				bad("%s: no JWT authorizer with issuer and audience", r.id)
			}
		case "AWS_IAM":
		default:
			bad("%s: takes requests of anybody (%s)", r.id, auth)
		}
		i := v.target(strings.TrimPrefix(str(r.props["Target"]), "integrations/"))
		if i == nil || i.kind != "AWS::ApiGatewayV2::Integration" {
			bad("%s: leads nowhere", r.id)
			continue
		}
		f := v.functionOf(i.props["IntegrationUri"])
		if f == nil || i.props["PayloadFormatVersion"] != "2.0" || i.props["IntegrationType"] != "AWS_PROXY" {
			bad("%s: calls no function with payload version 2.0", i.id)
			continue
		}
		door := str(dig(f.props, "Environment", "Variables", "DOOR"))
		if door != "http" && door != "admin" || door == "admin" && auth != "AWS_IAM" || door == "http" && strings.HasPrefix(str(r.props["RouteKey"]), "PUT /v1/tenants") {
			bad("%s: leads to door %s with %s", r.id, door, auth)
		}
		if want := map[any]string{"jwt": "JWT", "iam": "AWS_IAM"}[v.params["HttpAuth"]]; door == "http" && auth != want {
			bad("%s: %s, though the stack is for %v", r.id, auth, v.params["HttpAuth"])
		}
		if limit := number(i.props["TimeoutInMillis"]); limit > 0 && limit < 1000*number(f.props["Timeout"]) {
			bad("%s: gives up before its function does", i.id)
		}
		allowed := slices.ContainsFunc(v.of("AWS::Lambda::Permission"), func(p *resource) bool {
			return p.props["Principal"] == "apigateway.amazonaws.com" && p.props["FunctionName"] == i.props["IntegrationUri"]
		})
		if !allowed {
			bad("%s: may not call %s", i.id, f.id)
		}
	}
}

// invokePermissions: services call for this account's own resources, and nobody for everybody.
func invokePermissions(v *view, bad report) {
	for _, p := range v.of("AWS::Lambda::Permission") {
		principal := str(p.props["Principal"])
		if strings.HasSuffix(principal, ".amazonaws.com") {
			if p.props["SourceArn"] == nil && p.props["SourceAccount"] == nil {
				bad("%s: %s may call for anybody", p.id, principal)
			}
		} else if principal == "*" || principal == "" {
			bad("%s: anybody may call", p.id)
		}
		if p.props["Action"] != "lambda:InvokeFunction" {
			bad("%s: allows %v", p.id, p.props["Action"])
		}
		f := v.functionOf(p.props["FunctionName"])
		if f == nil {
			bad("%s: on no function of this stack", p.id)
			continue
		}
		if door := str(dig(f.props, "Environment", "Variables", "DOOR")); v.mains[f.id] == "./writers/lambda" && door != "direct" && principal != "apigateway.amazonaws.com" {
			bad("%s: %s may call door %s, which believes what API Gateway says of its caller", p.id, principal, door)
		}
	}
}

// outputs: what a subscriber, an operator and a caller must know.
func outputs(v *view, bad report) {
	type need struct {
		what, value string
	}
	var needs []need
	add := func(what string, r *resource, form string) {
		if r != nil {
			needs = append(needs, need{what, strings.ReplaceAll(form, "ID", r.id)})
		}
	}
	add("the ledger table", v.ledger(), "${ID}")
	add("the control table", v.control(), "${ID}")
	for _, b := range v.of("AWS::Events::EventBus") {
		add("the bus", b, "${ID}")
		add("the bus's ARN", b, "${ID.Arn}")
	}
	for _, f := range v.functions() {
		switch f.door {
		case "stream":
			add("the bucket of failures", v.target(f.env["FAILURE_BUCKET"]), "${ID}")
			add("the stream function", f.resource, "${ID}")
		case "direct":
			add("the direct door", v.aliasOf(f.id), "${ID}")
		}
	}
	for _, a := range v.of("AWS::ApiGatewayV2::Api") {
		add("the HTTP API", a, "https://${ID}.execute-api.eu-central-1.amazonaws.com")
	}
	for _, r := range v.of("AWS::EventSchemas::Registry") {
		add("the schema registry", r, "${ID.RegistryName}")
	}
	for _, r := range v.of("AWS::CloudWatch::Dashboard") {
		add("the dashboard", r, "${ID}")
	}
	for _, n := range needs {
		found := false
		for _, o := range v.outputs {
			value := str(o["Value"])
			found = found || value == n.value || n.what == "the dashboard" && strings.Contains(value, n.value) || n.what == "the schema registry" && strings.HasPrefix(value, strings.TrimSuffix(n.value, ".RegistryName}"))
		}
		if !found {
			bad("no output says %s", n.what)
		}
	}
	for id, o := range v.outputs {
		if str(o["Description"]) == "" {
			bad("output %s says nothing about itself", id)
		}
	}
}
