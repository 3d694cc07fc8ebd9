package whole_test

import (
	"bytes"
	"context"
	"crypto"
	"crypto/rand"
	"crypto/rsa"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"io"
	"math/big"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"testing"
	"time"
)

// issuer gives out tokens as an identity provider does, over TLS.
type issuer struct {
	url         string
	certificate string // file that vouches for it
	key         *rsa.PrivateKey
}

const keyID, audience = "key-1", "toolledger"

func newIssuer(t *testing.T) *issuer {
	t.Helper()
	key, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		t.Fatal(err)
	}
	i := &issuer{key: key}
	srv := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var doc any = map[string]string{"issuer": i.url, "jwks_uri": i.url + "/keys"}
		if r.URL.Path == "/keys" {
			doc = map[string]any{"keys": []map[string]string{{
				"kty": "RSA", "alg": "RS256", "use": "sig", "kid": keyID, "n": segment(key.N.Bytes()), "e": segment(big.NewInt(int64(key.E)).Bytes()),
			}}}
		}
		if err := json.NewEncoder(w).Encode(doc); err != nil {
			t.Error(err)
		}
	}))
	t.Cleanup(srv.Close)
	i.url = srv.URL
	i.certificate = filepath.Join(t.TempDir(), "issuer.pem")
	block := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: srv.Certificate().Raw})
	if err := os.WriteFile(i.certificate, block, 0o600); err != nil {
		t.Fatal(err)
	}
	return i
}

func segment(b []byte) string { return base64.RawURLEncoding.EncodeToString(b) }

// token is one with the given claims over the usual ones, signed by key.
func (i *issuer) token(t *testing.T, key *rsa.PrivateKey, claims map[string]any) string {
	t.Helper()
	all := map[string]any{"iss": i.url, "aud": audience, "sub": "agent-7", "iat": time.Now().Add(-time.Minute).Unix(), "exp": time.Now().Add(time.Hour).Unix()}
	for name, value := range claims {
		all[name] = value
	}
	header, err := json.Marshal(map[string]string{"alg": "RS256", "typ": "JWT", "kid": keyID})
	if err != nil {
		t.Fatal(err)
	}
	body, err := json.Marshal(all)
	if err != nil {
		t.Fatal(err)
	}
	text := segment(header) + "." + segment(body)
	sum := sha256.Sum256([]byte(text))
	signature, err := rsa.SignPKCS1v15(rand.Reader, key, crypto.SHA256, sum[:])
	if err != nil {
		t.Fatal(err)
	}
	return text + "." + segment(signature)
}

// tokens changes the deployed stack from IAM to tokens, and the claim that names the tenant, and shows that the door asks for
// them, and that the functions behind it have the new settings: a change of parameters reaches the alias that callers use.
func (d *deployment) tokens(t *testing.T, i *issuer) {
	t.Helper()
	d.params["HttpAuth"], d.params["JwtIssuer"], d.params["JwtAudience"], d.params["TenantClaim"] = "jwt", i.url, audience, "org"
	d.update(t)
	stranger, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		t.Fatal(err)
	}
	acme := map[string]any{"org": "acme"}
	for name, c := range map[string]struct {
		token  string
		status int
	}{
		"a token of the tenant":       {i.token(t, i.key, acme), http.StatusOK},
		"no token":                    {"", http.StatusUnauthorized},
		"a token of somebody else":    {i.token(t, stranger, acme), http.StatusUnauthorized},
		"a token that has expired":    {i.token(t, i.key, map[string]any{"org": "acme", "exp": time.Now().Add(-time.Minute).Unix()}), http.StatusUnauthorized},
		"a token for somebody else":   {i.token(t, i.key, map[string]any{"org": "acme", "aud": "another"}), http.StatusUnauthorized},
		"a token with the old claim":  {i.token(t, i.key, map[string]any{"tenant": "acme"}), http.StatusForbidden},
		"a token of two tenants":      {i.token(t, i.key, map[string]any{"org": []string{"acme", "other"}}), http.StatusForbidden},
		"a token of another tenant's": {i.token(t, i.key, map[string]any{"org": "nobody"}), http.StatusNotFound},
	} {
		status, body := d.get(t, "/v1/calls?session=s1&key=pr", c.token)
		if status != c.status {
			t.Errorf("%s: %d %s, want %d", name, status, body, c.status)
		}
	}
}

// get asks the HTTP API with a bearer token.
func (d *deployment) get(t *testing.T, path, token string) (int, []byte) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 40*time.Second)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, d.url+"/_aws/execute-api/"+d.ids["HttpApi"]+"/$default"+path, bytes.NewReader(nil))
	if err != nil {
		t.Fatal(err)
	}
	if token != "" {
		req.Header.Set("Authorization", "Bearer "+token)
	}
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	body, err := io.ReadAll(res.Body)
	if err != nil {
		t.Fatal(err)
	}
	return res.StatusCode, body
}
