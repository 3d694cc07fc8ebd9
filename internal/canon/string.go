package canon

import (
	"unicode/utf16"
	"unicode/utf8"
)

// plain marks the bytes that stand for themselves in a JSON string and need no look at their neighbours.
var plain = func() (t [256]bool) {
	for c := 0x20; c < utf8.RuneSelf; c++ {
		t[c] = c != '"' && c != '\\'
	}
	return t
}()

const hexDigits = "0123456789abcdef"

// str reads a string, from quote to quote, and says whether its canonical form holds an escape.
func (s *scanner) str() (escaped bool, err *Error) {
	src, i := s.src, s.pos+1
	run := i
	s.out = append(s.out, '"')
	for {
		for i < len(src) && plain[src[i]] {
			i++
		}
		if i == len(src) {
			return false, fail(RuleSyntax, i)
		}
		switch c := src[i]; {
		case c == '"':
			s.out = append(append(s.out, src[run:i]...), '"')
			s.pos = i + 1
			return escaped, nil
		case c == '\\':
			s.out = append(s.out, src[run:i]...)
			r, n, err := unescape(src, i)
			if err != nil {
				return false, err
			}
			s.out = appendRune(s.out, r)
			escaped = escaped || needsEscape(r)
			i += n
			run = i
		case c < 0x20:
			return false, fail(RuleSyntax, i)
		default:
			r, n := utf8.DecodeRune(src[i:])
			if r == utf8.RuneError && n == 1 {
				return false, fail(RuleUTF8, i)
			}
			i += n
		}
	}
}

// unescape reads the escape that begins at src[i], a surrogate pair as one, and returns its code point and length.
func unescape(src []byte, i int) (rune, int, *Error) {
	if i+1 >= len(src) {
		return 0, 0, fail(RuleSyntax, len(src))
	}
	switch c := src[i+1]; c {
	case '"', '\\', '/':
		return rune(c), 2, nil
	case 'b':
		return '\b', 2, nil
	case 'f':
		return '\f', 2, nil
	case 'n':
		return '\n', 2, nil
	case 'r':
		return '\r', 2, nil
	case 't':
		return '\t', 2, nil
	case 'u':
	default:
		return 0, 0, fail(RuleSyntax, i)
	}
	r, ok := hex4(src, i)
	if !ok {
		return 0, 0, fail(RuleSyntax, i)
	}
	if !utf16.IsSurrogate(r) {
		return r, 6, nil
	}
	if low, ok := hex4(src, i+6); ok {
		if pair := utf16.DecodeRune(r, low); pair != utf8.RuneError {
			return pair, 12, nil
		}
	}
	return 0, 0, fail(RuleSurrogate, i)
}

// hex4 reads \uXXXX at src[i].
func hex4(src []byte, i int) (rune, bool) {
	if i+6 > len(src) || src[i] != '\\' || src[i+1] != 'u' {
		return 0, false
	}
	var r rune
	for _, c := range src[i+2 : i+6] {
		switch {
		case isDigit(c):
			r = r<<4 | rune(c-'0')
		case 'a' <= c|0x20 && c|0x20 <= 'f':
			r = r<<4 | rune(c|0x20-'a'+10)
		default:
			return 0, false
		}
	}
	return r, true
}

func needsEscape(r rune) bool { return r < 0x20 || r == '"' || r == '\\' }

// appendRune appends the canonical form of one code point.
func appendRune(dst []byte, r rune) []byte {
	if !needsEscape(r) {
		return utf8.AppendRune(dst, r)
	}
	switch r {
	case '"', '\\':
		return append(dst, '\\', byte(r))
	case '\b':
		return append(dst, '\\', 'b')
	case '\t':
		return append(dst, '\\', 't')
	case '\n':
		return append(dst, '\\', 'n')
	case '\f':
		return append(dst, '\\', 'f')
	case '\r':
		return append(dst, '\\', 'r')
	default:
		return append(dst, '\\', 'u', '0', '0', hexDigits[r>>4], hexDigits[r&0xF])
	}
}

// appendUnescaped appends what a string in canonical form, without its quotes, stands for.
func appendUnescaped(dst, canonical []byte) []byte {
	for i := 0; i < len(canonical); {
		if canonical[i] != '\\' {
			dst = append(dst, canonical[i])
			i++
			continue
		}
		r, n, err := unescape(canonical, i)
		if err != nil { // our own output: cannot happen, and must not loop
			return append(dst, canonical[i:]...)
		}
		dst = utf8.AppendRune(dst, r)
		i += n
	}
	return dst
}

// appendString appends the canonical form of a Go string, which must be valid UTF-8.
func appendString(dst []byte, text string) []byte {
	dst = append(dst, '"')
	for _, r := range text {
		dst = appendRune(dst, r)
	}
	return append(dst, '"')
}
