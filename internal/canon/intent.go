package canon

import (
	"crypto/sha256"
	"unicode/utf8"
)

// ArgHashBytes is the length of the short hash of an argument. It only finds the names for a conflict that the intent hash
// has found already: where two values collide, by a chance of 2^-48, one name is missing from a message.
const ArgHashBytes = 6

// Intent is the hash of one intended action.
type Intent struct {
	// Hash is the SHA-256 of the canonical form of [tool, arguments].
	Hash [sha256.Size]byte
	// Args has one entry per top-level argument, in canonical key order; nil when there are none.
	Args []ArgHash
}

// ArgHash is the short hash of one top-level argument. Make them by HashIntent or DecodeArgHashes, and compare them by Differs.
type ArgHash struct {
	// Name is the argument's name. From DecodeArgHashes it may be the beginning of a long name and "…", or "…" alone for a
	// number of arguments that did not fit.
	Name string
	// Hash is the beginning of the SHA-256 of the argument's name and value.
	Hash [ArgHashBytes]byte

	kind     argKind
	nameHash [nameHashBytes]byte // of an abbreviated name, to find it among full ones
}

// HashIntent hashes a tool's name and its arguments, which must be a JSON object; empty text, white space and null count as {}.
// Returns an *[Error] for a tool that is not valid UTF-8 and for arguments that are refused.
func HashIntent(tool string, args []byte) (Intent, error) {
	if !utf8.ValidString(tool) {
		return Intent{}, &Error{Field: FieldTool, Offset: invalidUTF8(tool), Rule: RuleUTF8}
	}
	s := getScanner(args)
	defer s.release()
	s.out = append(s.out, '[')
	s.out = appendString(s.out, tool)
	s.out = append(s.out, ',')
	if err := s.arguments(); err != nil {
		err.Field = FieldArguments
		return Intent{}, err
	}
	s.out = append(s.out, ']')
	return Intent{Hash: sha256.Sum256(s.out), Args: s.argHashes()}, nil
}

// arguments reads the whole text as an object and leaves its members on the stack.
func (s *scanner) arguments() *Error {
	s.space()
	switch {
	case s.pos == len(s.src):
		s.out = append(s.out, "{}"...)
		return nil
	case s.peek() == 'n':
		start := len(s.out)
		if err := s.literal("null"); err != nil {
			return err
		}
		s.out = append(s.out[:start], "{}"...)
	case s.peek() != '{':
		return fail(RuleNotObject, s.pos)
	default:
		if err := s.object(1); err != nil {
			return err
		}
	}
	return s.atEnd()
}

// argHashes hashes the members on the stack. Their names share one string.
func (s *scanner) argHashes() []ArgHash {
	if len(s.members) == 0 {
		return nil
	}
	names := string(s.keys)
	args := make([]ArgHash, len(s.members))
	for i, m := range s.members {
		sum := sha256.Sum256(s.out[m.text:m.end])
		args[i].Name = names[m.key:m.keyEnd]
		copy(args[i].Hash[:], sum[:])
	}
	return args
}

// invalidUTF8 returns where text stops being valid UTF-8.
func invalidUTF8(text string) int {
	for i, r := range text {
		if r == utf8.RuneError {
			if _, n := utf8.DecodeRuneInString(text[i:]); n == 1 {
				return i
			}
		}
	}
	return len(text)
}
