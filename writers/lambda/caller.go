package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"regexp"
	"strings"

	"github.com/aws/aws-lambda-go/events"

	"toolledger/internal/canon"
	"toolledger/writers"
)

// role names an IAM role by account and name, as 123456789012/planner. The name of a role's session is no part of it: the
// caller chooses that.
type role string

var (
	roleText = regexp.MustCompile(`^[0-9]{12}/[A-Za-z0-9_+=,.@-]{1,64}$`)
	roleARN  = regexp.MustCompile(`^arn:[a-z0-9-]+:sts::([0-9]{12}):assumed-role/([A-Za-z0-9_+=,.@-]{1,64})/[A-Za-z0-9_+=,.@-]{2,64}$`)
)

// callers says who a caller is, from what the authorizer in front of the function verified.
type callers struct {
	claim   string                    // the JWT claim that names the tenant
	tenants map[role]writers.TenantID // of IAM callers
	admins  map[role]bool             // IAM callers who may set plans
}

// caller is who a request comes from.
type caller struct {
	tenant writers.TenantID
	admin  bool
}

// of reads the authorizer's part of an event. A request that two authorizers speak for is nobody's.
func (c callers) of(e *events.APIGatewayV2HTTPRequest) caller {
	a := e.RequestContext.Authorizer
	switch {
	case a == nil || a.JWT != nil && a.IAM != nil:
		return caller{}
	case a.JWT != nil:
		return caller{tenant: c.byClaim(a.JWT.Claims)}
	case a.IAM != nil:
		r := roleOf(a.IAM)
		return caller{tenant: c.tenants[r], admin: r != "" && c.admins[r]}
	}
	return caller{}
}

// byClaim is the one scalar claim; "" where there is none. HTTP APIs flatten a list claim to "[a b]": several tenants are none.
func (c callers) byClaim(claims map[string]string) writers.TenantID {
	claim := claims[c.claim]
	if c.claim == "" || strings.HasPrefix(claim, "[") || strings.HasPrefix(claim, "{") {
		return ""
	}
	return writers.TenantID(claim)
}

// roleOf is the role that an IAM caller has assumed; "" for users, federated identities and whatever cannot be read.
func roleOf(iam *events.APIGatewayV2HTTPRequestContextAuthorizerIAMDescription) role {
	m := roleARN.FindStringSubmatch(iam.UserARN)
	if m == nil || iam.AccountID != "" && iam.AccountID != m[1] {
		return ""
	}
	return role(m[1] + "/" + m[2])
}

// readTenants reads {"123456789012/planner":"acme",…}. Errors: errSetting.
func readTenants(name, text string) (map[role]writers.TenantID, error) {
	if text == "" {
		return nil, nil
	}
	var m map[string]string
	if err := strict(text, &m); err != nil {
		return nil, fmt.Errorf("%w %s must be a JSON object of account/role and tenant: %w", errSetting, name, err)
	}
	out := make(map[role]writers.TenantID, len(m))
	for r, tenant := range m {
		if !roleText.MatchString(r) || tenant == "" {
			return nil, fmt.Errorf(`%w %s must be as {"123456789012/role":"tenant"}; %q is not`, errSetting, name, r)
		}
		out[role(r)] = writers.TenantID(tenant)
	}
	return out, nil
}

// readRoles reads ["123456789012/ops",…]. Errors: errSetting.
func readRoles(name, text string) (map[role]bool, error) {
	var list []string
	if text != "" {
		if err := strict(text, &list); err != nil {
			return nil, fmt.Errorf("%w %s must be a JSON list of account/role: %w", errSetting, name, err)
		}
	}
	out := map[role]bool{}
	for _, r := range list {
		if !roleText.MatchString(r) {
			return nil, fmt.Errorf(`%w %s must be as ["123456789012/role"]; %q is not`, errSetting, name, r)
		}
		out[role(r)] = true
	}
	return out, nil
}

var errNotJSON = errors.New("it is not the JSON that is expected")

// strict refuses duplicate keys, which would make it a matter of luck who a role is.
func strict(text string, into any) error {
	if _, err := canon.Append(nil, []byte(text)); err != nil {
		return err
	}
	if json.Unmarshal([]byte(text), into) != nil {
		return errNotJSON
	}
	return nil
}
