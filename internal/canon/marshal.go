package canon

import (
	"bytes"
	"encoding/json"
	"reflect"
	"sync"
)

// Marshal turns a call's arguments into JSON text. A json.RawMessage, or a pointer to one, is taken as it is (HashIntent
// validates it), everything else is encoded by encoding/json without HTML escaping; nil and an empty RawMessage are {}.
// The result may share memory with args. Returns an *[Error] with RuleNotEncodable, or with RuleUTF8 for a string that is not
// valid UTF-8, which encoding/json would alter.
func Marshal(args any) ([]byte, error) {
	if raw, ok := rawText(args); ok {
		return raw, nil
	}
	e := getEncoder()
	defer e.release()
	text, err := e.encode(args)
	if err != nil {
		return nil, err
	}
	return bytes.Clone(text), nil
}

// HashArgs is HashIntent of Marshal, without the copy between them. Returns an *[Error].
func HashArgs(tool string, args any) (Intent, error) {
	if raw, ok := rawText(args); ok {
		return HashIntent(tool, raw)
	}
	e := getEncoder()
	defer e.release()
	text, err := e.encode(args)
	if err != nil {
		return Intent{}, err
	}
	return HashIntent(tool, text)
}

// rawText returns arguments that are JSON text already.
func rawText(args any) ([]byte, bool) {
	var raw json.RawMessage
	switch args := args.(type) {
	case nil:
	case json.RawMessage:
		raw = args
	case *json.RawMessage:
		if args != nil {
			raw = *args
		}
	default:
		return nil, false
	}
	if len(raw) == 0 {
		return []byte("{}"), true
	}
	return raw, true
}

// encoder is a JSON encoder and the buffer that it writes to, used again and again.
type encoder struct {
	text bytes.Buffer
	json *json.Encoder
}

var encoders = sync.Pool{New: func() any {
	e := new(encoder)
	e.json = json.NewEncoder(&e.text)
	e.json.SetEscapeHTML(false)
	return e
}}

func getEncoder() *encoder {
	e := encoders.Get().(*encoder) //nolint:forcetypeassert // the pool holds nothing else
	e.text.Reset()
	return e
}

func (e *encoder) release() {
	if e.text.Cap() <= maxPooledBytes {
		encoders.Put(e)
	}
}

// encode returns text that is valid until release.
func (e *encoder) encode(args any) ([]byte, error) {
	if err := e.json.Encode(args); err != nil {
		return nil, &Error{Field: FieldArguments, Rule: RuleNotEncodable, Err: err}
	}
	text := bytes.TrimSuffix(e.text.Bytes(), []byte("\n"))
	if bytes.Contains(text, []byte(replacementEscape)) && holdsInvalidUTF8(reflect.ValueOf(args), 2*MaxDepth) {
		return nil, &Error{Field: FieldArguments, Rule: RuleUTF8, Offset: bytes.Index(text, []byte(replacementEscape))}
	}
	return text, nil
}
