package schema

import "fmt"

// DecodeError says which attribute of an item could not be read and which rule it broke. It never holds the value.
type DecodeError struct {
	Attr string // attribute name; "" where the keys or the whole item are meant
	Rule string // what would have been right
}

// Error returns attribute and rule.
func (e *DecodeError) Error() string {
	if e.Attr == "" {
		return "item: " + e.Rule
	}
	return fmt.Sprintf("attribute %s: %s", e.Attr, e.Rule)
}

// IDError says which identifier was refused and by which rule.
type IDError struct {
	Field string
	Rule  string
}

// Error returns field and rule.
func (e *IDError) Error() string { return e.Field + " " + e.Rule }
