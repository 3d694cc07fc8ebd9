package canon

import (
	"slices"
	"sync"
)

// MaxDepth is how many arrays and objects may be nested in each other. It bounds the stack; no tool's schema comes near it.
const MaxDepth = 512

// Append appends the canonical form of the JSON text src to dst. The text is one JSON value of any kind; white space around it
// is allowed. dst and src must not overlap. On error dst is returned as it was, with an *[Error].
func Append(dst, src []byte) ([]byte, error) {
	s := getScanner(src)
	pooled := s.out
	s.out = dst
	err := s.document()
	out := s.out
	s.out = pooled
	s.release()
	if err != nil {
		return dst, err
	}
	return out, nil
}

// scanner validates and canonicalises in one pass: members are written in the order in which they come, and moved when their
// object ends if that order was not the canonical one.
type scanner struct {
	src []byte
	pos int
	out []byte
	// keys holds the unescaped keys of the objects that are open now, members where these and their text lie. Both are stacks.
	keys    []byte
	members []member
	// scratch is used within one step only: the digits of a number, or the text of an object while its members are moved.
	scratch []byte
}

// member is one member of an open object.
type member struct {
	key, keyEnd int // in scanner.keys
	text, end   int // in scanner.out: key, colon and value
	source      int // offset of the key in scanner.src
}

func (s *scanner) key(m member) []byte { return s.keys[m.key:m.keyEnd] }

var scanners = sync.Pool{New: func() any { return new(scanner) }}

// maxPooledBytes keeps one huge text from pinning its buffers for the life of the process.
const maxPooledBytes = 64 << 10

func getScanner(src []byte) *scanner {
	s := scanners.Get().(*scanner) //nolint:forcetypeassert // the pool holds nothing else
	s.src, s.pos = src, 0
	s.out, s.keys, s.members, s.scratch = s.out[:0], s.keys[:0], s.members[:0], s.scratch[:0]
	return s
}

func (s *scanner) release() {
	s.src = nil
	if max(cap(s.out), cap(s.keys), cap(s.scratch), cap(s.members)*40) <= maxPooledBytes {
		scanners.Put(s)
	}
}

// fail takes the place of the position's value in an error: only rule and offset are told.
func fail(rule string, offset int) *Error { return &Error{Rule: rule, Offset: offset} }

// document reads the whole text: one value and the white space around it.
func (s *scanner) document() error {
	s.space()
	if err := s.value(1); err != nil {
		return err
	}
	if err := s.atEnd(); err != nil {
		return err
	}
	return nil
}

func (s *scanner) atEnd() *Error {
	s.space()
	if s.pos < len(s.src) {
		return fail(RuleTrailing, s.pos)
	}
	return nil
}

func (s *scanner) space() {
	for s.pos < len(s.src) {
		switch s.src[s.pos] {
		case ' ', '\n', '\t', '\r':
			s.pos++
		default:
			return
		}
	}
}

// peek returns the byte at the position, or 0 at the end: no JSON token begins with it.
func (s *scanner) peek() byte {
	if s.pos < len(s.src) {
		return s.src[s.pos]
	}
	return 0
}

// value reads one value; depth is the nesting of an array or object that begins here, from 1.
func (s *scanner) value(depth int) *Error {
	switch c := s.peek(); c {
	case '{':
		members, keys := len(s.members), len(s.keys)
		err := s.object(depth)
		s.members, s.keys = s.members[:members], s.keys[:keys]
		return err
	case '[':
		return s.array(depth)
	case '"':
		_, err := s.str()
		return err
	case 't':
		return s.literal("true")
	case 'f':
		return s.literal("false")
	case 'n':
		return s.literal("null")
	default:
		if c == '-' || isDigit(c) {
			return s.number()
		}
		return fail(RuleSyntax, s.pos)
	}
}

func (s *scanner) literal(text string) *Error {
	if len(s.src)-s.pos < len(text) || string(s.src[s.pos:s.pos+len(text)]) != text {
		return fail(RuleSyntax, s.pos)
	}
	s.pos += len(text)
	s.out = append(s.out, text...)
	return nil
}

func (s *scanner) array(depth int) *Error {
	if depth > MaxDepth {
		return fail(RuleDepth, s.pos)
	}
	s.pos++
	s.out = append(s.out, '[')
	s.space()
	if s.peek() == ']' {
		s.pos++
		s.out = append(s.out, ']')
		return nil
	}
	for {
		s.space()
		if err := s.value(depth + 1); err != nil {
			return err
		}
		s.space()
		switch s.peek() {
		case ',':
			s.out = append(s.out, ',')
		case ']':
			s.pos++
			s.out = append(s.out, ']')
			return nil
		default:
			return fail(RuleSyntax, s.pos)
		}
		s.pos++
	}
}

// object reads an object and leaves its members on the stack, in canonical order; the caller takes them off.
func (s *scanner) object(depth int) *Error {
	if depth > MaxDepth {
		return fail(RuleDepth, s.pos)
	}
	first := len(s.members)
	s.pos++
	s.out = append(s.out, '{')
	s.space()
	if s.peek() == '}' {
		s.pos++
		s.out = append(s.out, '}')
		return nil
	}
	sorted := true
	for {
		s.space()
		m, err := s.member(depth)
		if err != nil {
			return err
		}
		if n := len(s.members); n > first {
			sorted = sorted && compareUTF16(s.key(s.members[n-1]), s.key(m)) < 0
		}
		s.members = append(s.members, m)
		s.space()
		switch s.peek() {
		case ',':
			s.out = append(s.out, ',')
		case '}':
			s.pos++
			s.out = append(s.out, '}')
			if sorted {
				return nil
			}
			return s.sort(s.members[first:], depth)
		default:
			return fail(RuleSyntax, s.pos)
		}
		s.pos++
	}
}

// member reads a key, a colon and a value.
func (s *scanner) member(depth int) (member, *Error) {
	m := member{key: len(s.keys), text: len(s.out), source: s.pos}
	if s.peek() != '"' {
		return m, fail(RuleSyntax, s.pos)
	}
	escaped, err := s.str()
	if err != nil {
		return m, err
	}
	if name := s.out[m.text+1 : len(s.out)-1]; escaped {
		s.keys = appendUnescaped(s.keys, name)
	} else {
		s.keys = append(s.keys, name...)
	}
	m.keyEnd = len(s.keys)
	s.space()
	if s.peek() != ':' {
		return m, s.inside(fail(RuleSyntax, s.pos), m, depth)
	}
	s.pos++
	s.out = append(s.out, ':')
	s.space()
	if err := s.value(depth + 1); err != nil {
		return m, s.inside(err, m, depth)
	}
	m.end = len(s.out)
	return m, nil
}

// inside names the top-level member in which an error lies. Deeper keys may be data and are not named.
func (s *scanner) inside(err *Error, m member, depth int) *Error {
	if depth == 1 {
		err.Arg = nameForError(s.key(m))
	}
	return err
}

// sort puts the members of the object that ends at the end of out into canonical order, in members and in out.
func (s *scanner) sort(members []member, depth int) *Error {
	start := members[0].text
	slices.SortFunc(members, func(a, b member) int {
		if c := compareUTF16(s.key(a), s.key(b)); c != 0 {
			return c
		}
		return a.source - b.source
	})
	for i := range members[1:] {
		if again := members[i+1]; string(s.key(members[i])) == string(s.key(again)) {
			err := fail(RuleDuplicateKey, again.source)
			err.Key = nameForError(s.key(again))
			return s.inside(err, again, depth)
		}
	}
	s.scratch = append(s.scratch[:0], s.out[start:]...)
	s.out = s.out[:start]
	for i := range members {
		if i > 0 {
			s.out = append(s.out, ',')
		}
		m := &members[i]
		text := s.scratch[m.text-start : m.end-start]
		m.text = len(s.out)
		s.out = append(s.out, text...)
		m.end = len(s.out)
	}
	s.out = append(s.out, '}')
	return nil
}

// compareUTF16 compares two valid UTF-8 texts as sequences of UTF-16 code units.
func compareUTF16(a, b []byte) int {
	for i := range min(len(a), len(b)) {
		if a[i] != b[i] {
			return int(utf16Rank(a[i])) - int(utf16Rank(b[i]))
		}
	}
	return len(a) - len(b)
}

// utf16Rank orders the bytes in which two valid UTF-8 texts first differ. Byte order is code point order, and UTF-16 differs from
// it in one place: code points from U+10000 (lead bytes F0…F4) are surrogates D800…DFFF, below U+E000…U+FFFF (EE and EF).
func utf16Rank(c byte) byte {
	switch {
	case c >= 0xF0:
		return c - 2
	case c >= 0xEE:
		return c + 8
	default:
		return c
	}
}
