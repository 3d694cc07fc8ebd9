package canon

import (
	"encoding"
	"encoding/json"
	"reflect"
	"unicode/utf8"
)

// replacementEscape is what encoding/json writes in place of bytes that are not UTF-8. U+FFFD itself it writes as it is, so without
// this escape in a text there is nothing to look for, and looking, which is slow, is rare.
const replacementEscape = `\ufffd`

var (
	jsonMarshaler = reflect.TypeFor[json.Marshaler]()
	textMarshaler = reflect.TypeFor[encoding.TextMarshaler]()
)

// holdsInvalidUTF8 says whether a value that encoding/json has encoded holds a string that it altered: two different arguments
// would be one text. What types write by methods of their own is not looked into.
func holdsInvalidUTF8(v reflect.Value, depth int) bool {
	if !v.IsValid() || depth == 0 || marshalsItself(v.Type()) {
		return false
	}
	switch v.Kind() {
	case reflect.String:
		return !utf8.ValidString(v.String())
	case reflect.Pointer, reflect.Interface:
		return holdsInvalidUTF8(v.Elem(), depth-1)
	case reflect.Slice, reflect.Array:
		for i := range v.Len() {
			if holdsInvalidUTF8(v.Index(i), depth-1) {
				return true
			}
		}
	case reflect.Map:
		for member := v.MapRange(); member.Next(); {
			if holdsInvalidUTF8(member.Key(), depth-1) || holdsInvalidUTF8(member.Value(), depth-1) {
				return true
			}
		}
	case reflect.Struct:
		for i := range v.NumField() {
			field := v.Type().Field(i)
			encoded := (field.IsExported() || field.Anonymous) && field.Tag.Get("json") != "-"
			if encoded && holdsInvalidUTF8(v.Field(i), depth-1) {
				return true
			}
		}
	default: // numbers and booleans
	}
	return false
}

func marshalsItself(t reflect.Type) bool {
	if t.Kind() == reflect.Interface {
		return false
	}
	if t.Kind() != reflect.Pointer {
		t = reflect.PointerTo(t) // has the value's methods too
	}
	return t.Implements(jsonMarshaler) || t.Implements(textMarshaler)
}
