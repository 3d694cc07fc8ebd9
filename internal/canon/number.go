package canon

import (
	"bytes"
	"strconv"
)

// MaxExponent bounds the decimal exponent of a number in scientific notation (one digit before the point), both ways. Nothing
// needs more, and clients in other languages can hold it in 32 bits.
const MaxExponent = 999_999_999

// maxPlainDigits is up to where ECMAScript writes an integer's zeros out.
const maxPlainDigits = 21

func isDigit(c byte) bool { return '0' <= c && c <= '9' }

// digits returns the end of the digits from src[i] on.
func digits(src []byte, i int) int {
	for i < len(src) && isDigit(src[i]) {
		i++
	}
	return i
}

// number reads a number. Most are in canonical form already, which the first pass over them finds out.
func (s *scanner) number() *Error {
	src, start := s.src, s.pos
	i := start
	if src[i] == '-' {
		i++
	}
	whole := i
	i = digits(src, i)
	if i == whole || (src[whole] == '0' && i > whole+1) {
		return fail(RuleSyntax, min(i, whole+1))
	}
	wholeEnd := i
	fraction := i
	if i < len(src) && src[i] == '.' {
		fraction = i + 1
		i = digits(src, fraction)
		if i == fraction {
			return fail(RuleSyntax, i)
		}
	}
	fractionEnd := i
	if i < len(src) && (src[i] == 'e' || src[i] == 'E') {
		exponent, end := parseExponent(src, i+1)
		if end < 0 {
			return fail(RuleSyntax, i+1)
		}
		s.pos = end
		return s.appendNumber(src[start:wholeEnd], src[fraction:fractionEnd], exponent, start)
	}
	s.pos = i
	if src[whole] != '0' && wholeEnd-whole <= maxPlainDigits && (fraction == fractionEnd || src[fractionEnd-1] != '0') {
		s.out = append(s.out, src[start:i]...)
		return nil
	}
	return s.appendNumber(src[start:wholeEnd], src[fraction:fractionEnd], 0, start)
}

// farExponent is where exponents stop growing while they are read: far outside of what is allowed, and still far outside after
// the digits of any text that fits into memory have shifted it. Ten times as much still fits.
const farExponent = int64(1) << 56

// parseExponent reads sign and digits from src[i] on; end is negative when there are none.
func parseExponent(src []byte, i int) (exponent int64, end int) {
	negative := false
	if i < len(src) && (src[i] == '+' || src[i] == '-') {
		negative = src[i] == '-'
		i++
	}
	end = digits(src, i)
	if end == i {
		return 0, -1
	}
	for _, c := range src[i:end] {
		exponent = min(exponent*10+int64(c-'0'), farExponent)
	}
	if negative {
		exponent = -exponent
	}
	return exponent, end
}

// appendNumber lays out whole.fraction × 10^exponent by its significant digits; offset is for the error.
func (s *scanner) appendNumber(whole, fraction []byte, exponent int64, offset int) *Error {
	negative := whole[0] == '-'
	if negative {
		whole = whole[1:]
	}
	s.scratch = append(append(s.scratch[:0], whole...), fraction...)
	significant := bytes.TrimLeft(s.scratch, "0")
	if len(significant) == 0 {
		s.out = append(s.out, '0')
		return nil
	}
	// point is how many digits stand before the decimal point: the n of the package comment.
	point := int64(len(whole)) - int64(len(s.scratch)-len(significant)) + exponent
	if point-1 > MaxExponent || point-1 < -MaxExponent {
		return fail(RuleExponent, offset)
	}
	significant = bytes.TrimRight(significant, "0")
	if negative {
		s.out = append(s.out, '-')
	}
	s.out = appendLayout(s.out, significant, int(point))
	return nil
}

func appendLayout(dst, significant []byte, point int) []byte {
	k := len(significant)
	switch {
	case k <= point && point <= maxPlainDigits:
		dst = append(dst, significant...)
		return appendZeros(dst, point-k)
	case 0 < point && point <= maxPlainDigits:
		dst = append(append(dst, significant[:point]...), '.')
		return append(dst, significant[point:]...)
	case -6 < point && point <= 0:
		dst = appendZeros(append(dst, "0."...), -point)
		return append(dst, significant...)
	}
	dst = append(dst, significant[0])
	if k > 1 {
		dst = append(append(dst, '.'), significant[1:]...)
	}
	dst = append(dst, 'e')
	if point > 0 {
		dst = append(dst, '+')
	}
	return strconv.AppendInt(dst, int64(point-1), 10)
}

func appendZeros(dst []byte, n int) []byte {
	for range n {
		dst = append(dst, '0')
	}
	return dst
}
