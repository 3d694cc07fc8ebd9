package schema

import (
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"
)

// MaxTokens is the largest number of tokens that is accepted anywhere: what a JSON reader with float64 numbers still reads exactly.
const MaxTokens = 1 << 53

// Debit is what a row took from one quota item, to which alone it is refunded.
type Debit struct {
	Period string
	Shard  int
	Tokens int64
}

// Key is the key of the quota item.
func (d Debit) Key(tenant string) Key { return QuotaKey(tenant, d.Period, d.Shard) }

func (d Debit) name() string { return d.Period + "/" + strconv.Itoa(d.Shard) }

// SumDebits adds up, and stops at the largest number: the debits of a row that no writer of ours wrote may come to more, and
// must not come round to what would be lawful.
func SumDebits(debits []Debit) int64 {
	var sum int64
	for _, d := range debits {
		if d.Tokens > math.MaxInt64-sum {
			return math.MaxInt64
		}
		sum += d.Tokens
	}
	return sum
}

// DebitsValue is the stored form: a map of "<period>/<shard>" to tokens.
func DebitsValue(debits []Debit) types.AttributeValue {
	m := make(map[string]types.AttributeValue, len(debits))
	for _, d := range debits {
		m[d.name()] = N(d.Tokens)
	}
	return &types.AttributeValueMemberM{Value: m}
}

func readDebits(v Value, to *[]Debit) string {
	if v.Type != TypeMap {
		return "must be a map"
	}
	debits := make([]Debit, 0, len(v.Map))
	for name, amount := range v.Map {
		period, shard, ok := strings.Cut(name, "/")
		d := Debit{Period: period}
		var err error
		d.Shard, err = strconv.Atoi(shard)
		if !ok || err != nil || d.Shard < 0 || d.name() != name || !ValidPeriod(period) {
			return "must name quota items as <period>/<shard>"
		}
		if rule := readCount(amount, &d.Tokens); rule != "" || d.Tokens == 0 {
			return "must hold amounts between 1 and 2^53"
		}
		debits = append(debits, d)
	}
	slices.SortFunc(debits, compareDebits)
	*to = debits
	return ""
}

func compareDebits(a, b Debit) int {
	if c := strings.Compare(a.Period, b.Period); c != 0 {
		return c
	}
	return a.Shard - b.Shard
}
