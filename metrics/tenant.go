package metrics

import (
	"crypto/sha256"
	"encoding/hex"
	"strings"
)

// OtherTenants is the value of DimensionTenant that stands for all tenants without a series of their own. No tenant's own
// value equals it.
const OtherTenants = "_other"

// maxPlainTenant is how long a tenant's name may be to be written out; CloudWatch takes 1,024 bytes.
const maxPlainTenant = 1000

const hexDigits = "0123456789ABCDEF"

// TenantValue is the dimension value of a tenant: ASCII as CloudWatch demands, never blank, different for different
// tenants, and the tenant's name itself where that is plain. Other bytes are written as %XX; a name that would become too
// long ends in a hash of the whole.
func TenantValue(tenant string) string {
	if tenant != OtherTenants && plain(tenant) {
		return tenant
	}
	var b strings.Builder
	for i := range len(tenant) {
		c := tenant[i]
		escape := c < ' ' || c > '~' || c == '%' || i == 0 && c == '_' || c == ' ' && (i == 0 || i == len(tenant)-1)
		if !escape {
			b.WriteByte(c)
			continue
		}
		b.WriteByte('%')
		b.WriteByte(hexDigits[c>>4])
		b.WriteByte(hexDigits[c&15])
	}
	switch value := b.String(); {
	case value == "":
		return "%"
	case len(value) > maxPlainTenant:
		sum := sha256.Sum256([]byte(tenant))
		return value[:maxPlainTenant-64] + "%~" + hex.EncodeToString(sum[:16])
	default:
		return value
	}
}

// plain tells whether a name can be a dimension value as it is.
func plain(s string) bool {
	if s == "" || len(s) > maxPlainTenant || s[0] == ' ' || s[len(s)-1] == ' ' {
		return false
	}
	for i := range len(s) {
		if s[i] < ' ' || s[i] > '~' || s[i] == '%' {
			return false
		}
	}
	return true
}
