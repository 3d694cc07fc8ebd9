package schema

// Attr is one attribute of an item.
type Attr struct {
	Name  string
	Value Value
}

// Image is an item as a list of attributes, for readers of many items: it takes no map. nil means that there is no item;
// one without attributes is not nil.
type Image []Attr

// Fields yields the attributes.
func (im Image) Fields() Fields {
	return func(yield func(string, Value) bool) {
		for i := range im {
			if !yield(im[i].Name, im[i].Value) {
				return
			}
		}
	}
}

// ReadRow is DecodeRow for an item whose key is known to be key, and to say id: it writes the row to r, whose former content
// is lost, and reads the key no second time. The row shares the memory of the image. Errors: *DecodeError.
func (im Image) ReadRow(r *Row, key Key, id *ItemID) error {
	*r = Row{}
	var format int64
	for i := range im {
		a := &im[i]
		var rule string
		if a.Name == AFormat {
			rule = readFormat(a.Value, &format)
		} else {
			rule = r.set(a.Name, a.Value)
		}
		if rule != "" {
			return &DecodeError{a.Name, rule}
		}
	}
	if r.Key != key {
		return &DecodeError{"", "the keys in the image must be those of the record"}
	}
	return r.checkAs(id, format, true)
}
