package streams

import (
	"errors"
	"strings"
	"unicode/utf16"
	"unicode/utf8"
)

// The decoder below reads a Lambda batch without encoding/json: a batch holds up to 6 MB, most of it in images of which
// every attribute is wanted as a piece of the batch itself. Strings are cut out of the batch wherever they hold no escape.

var (
	errSyntax = errors.New("is not JSON")
	errDepth  = errors.New("is nested too deeply")
)

// maxDepth is how deep DynamoDB nests documents.
const maxDepth = 32

// scanner walks over JSON text.
type scanner struct {
	s   string
	pos int
}

// peek returns the next byte that is not white space, or 0 at the end.
func (sc *scanner) peek() byte {
	for sc.pos < len(sc.s) {
		switch c := sc.s[sc.pos]; c {
		case ' ', '\n', '\t', '\r':
			sc.pos++
		default:
			return c
		}
	}
	return 0
}

// take consumes the next byte that is not white space if it is c.
func (sc *scanner) take(c byte) bool {
	if sc.peek() != c {
		return false
	}
	sc.pos++
	return true
}

// null consumes a null.
func (sc *scanner) null() bool { return sc.peek() == 'n' && sc.literal("null") }

func (sc *scanner) literal(word string) bool {
	if !strings.HasPrefix(sc.s[sc.pos:], word) {
		return false
	}
	sc.pos += len(word)
	return true
}

// object calls member for each member; member must consume the value.
func (sc *scanner) object(member func(name string) error) error {
	if !sc.take('{') {
		return errSyntax
	}
	if sc.take('}') {
		return nil
	}
	for {
		name, err := sc.text()
		if err != nil {
			return err
		}
		if !sc.take(':') {
			return errSyntax
		}
		if err := member(name); err != nil {
			return err
		}
		if sc.take('}') {
			return nil
		}
		if !sc.take(',') {
			return errSyntax
		}
	}
}

// array calls element for each element; element must consume it.
func (sc *scanner) array(element func() error) error {
	if !sc.take('[') {
		return errSyntax
	}
	if sc.take(']') {
		return nil
	}
	for {
		if err := element(); err != nil {
			return err
		}
		if sc.take(']') {
			return nil
		}
		if !sc.take(',') {
			return errSyntax
		}
	}
}

// text reads a string.
func (sc *scanner) text() (string, error) {
	if !sc.take('"') {
		return "", errSyntax
	}
	start := sc.pos
	for i := start; i < len(sc.s); i++ {
		switch c := sc.s[i]; {
		case c == '"':
			sc.pos = i + 1
			return sc.s[start:i], nil
		case c == '\\':
			return sc.escaped(start, i)
		case c < ' ':
			return "", errSyntax
		}
	}
	return "", errSyntax
}

// escaped reads the rest of a string from its first escape at i.
func (sc *scanner) escaped(start, i int) (string, error) {
	end := i
	for end < len(sc.s) && sc.s[end] != '"' {
		if sc.s[end] == '\\' {
			end++
		}
		end++
	}
	if end >= len(sc.s) {
		return "", errSyntax
	}
	sc.pos = end + 1
	return unescape(sc.s[start:end], i-start)
}

// unescape decodes the escapes of s, of which the first is at i.
func unescape(s string, i int) (string, error) {
	var b strings.Builder
	b.Grow(len(s))
	for {
		b.WriteString(s[:i])
		s = s[i+1:]
		if s == "" {
			return "", errSyntax
		}
		c := s[0]
		s = s[1:]
		if c == 'u' {
			r, n := unescapeUnicode(s)
			if n == 0 {
				return "", errSyntax
			}
			b.WriteRune(r)
			s = s[n:]
		} else if plain := strings.IndexByte(`"\/bfnrt`, c); plain >= 0 {
			b.WriteByte("\"\\/\b\f\n\r\t"[plain])
		} else {
			return "", errSyntax
		}
		for i = 0; i < len(s) && s[i] != '\\'; i++ {
			if s[i] < ' ' {
				return "", errSyntax
			}
		}
		if i == len(s) {
			b.WriteString(s)
			return b.String(), nil
		}
	}
}

// unescapeUnicode decodes what follows `\u`, both halves of a surrogate pair, and returns how much of s that was; 0: it is
// no escape. Half a pair becomes U+FFFD, as encoding/json has it.
func unescapeUnicode(s string) (rune, int) {
	r := hex4(s)
	if r < 0 {
		return 0, 0
	}
	if !utf16.IsSurrogate(r) {
		return r, 4
	}
	if strings.HasPrefix(s[4:], `\u`) {
		if both := utf16.DecodeRune(r, hex4(s[6:])); both != utf8.RuneError {
			return both, 10
		}
	}
	return utf8.RuneError, 4
}

func hex4(s string) rune {
	if len(s) < 4 {
		return -1
	}
	var r rune
	for i := range 4 {
		c := s[i]
		switch {
		case '0' <= c && c <= '9':
			c -= '0'
		case 'a' <= c && c <= 'f':
			c -= 'a' - 10
		case 'A' <= c && c <= 'F':
			c -= 'A' - 10
		default:
			return -1
		}
		r = r<<4 | rune(c)
	}
	return r
}

// number reads a number's text.
func (sc *scanner) number() (string, error) {
	sc.peek()
	start := sc.pos
	for sc.pos < len(sc.s) && strings.IndexByte("+-.0123456789eE", sc.s[sc.pos]) >= 0 {
		sc.pos++
	}
	if sc.pos == start {
		return "", errSyntax
	}
	return sc.s[start:sc.pos], nil
}

// skip consumes one value of any type and returns its text. It matches brackets and strings and is lenient about the rest,
// which nobody reads.
func (sc *scanner) skip() (string, error) {
	c := sc.peek()
	start := sc.pos
	switch c {
	case '"':
		if err := sc.skipString(start); err != nil {
			return "", err
		}
	case '{', '[':
		if err := sc.skipNested(); err != nil {
			return "", err
		}
	default:
		for sc.pos < len(sc.s) && strings.IndexByte(" \n\t\r,:]}[{\"", sc.s[sc.pos]) < 0 {
			sc.pos++
		}
		if sc.pos == start {
			return "", errSyntax
		}
	}
	return sc.s[start:sc.pos], nil
}

func (sc *scanner) skipNested() error {
	depth := 0
	for sc.pos < len(sc.s) {
		switch sc.s[sc.pos] {
		case '{', '[':
			depth++
		case '}', ']':
			depth--
			if depth == 0 {
				sc.pos++
				return nil
			}
		case '"':
			if err := sc.skipString(sc.pos); err != nil {
				return err
			}
			continue
		}
		sc.pos++
	}
	return errSyntax
}

// skipString consumes the string that begins at start.
func (sc *scanner) skipString(start int) error {
	i := start + 1
	for {
		n := strings.IndexByte(sc.s[min(i, len(sc.s)):], '"')
		if n < 0 {
			return errSyntax
		}
		i += n
		backslashes := 0
		for sc.s[i-1-backslashes] == '\\' {
			backslashes++
		}
		i++
		if backslashes%2 == 0 {
			sc.pos = i
			return nil
		}
	}
}
