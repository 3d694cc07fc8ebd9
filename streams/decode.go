package streams

import (
	"encoding/base64"
	"errors"
	"strconv"
	"time"

	"toolledger/internal/schema"
)

// batchReader reads the records of a Lambda stream batch one after the other. A record that is broken inside is still a
// record; a batch whose records cannot be told apart is an error.
type batchReader struct {
	sc      scanner
	decoder recordDecoder
	change  Change
	begun   bool  // a record has been read
	ended   bool  // the last one has been
	err     error // *BatchError
}

// newBatchReader finds the records of a batch. Errors: *BatchError.
func newBatchReader(batch string) (*batchReader, error) {
	b := &batchReader{sc: scanner{s: batch}}
	if !b.sc.take('{') {
		return nil, &BatchError{"is not a stream batch", errSyntax}
	}
	for !b.sc.take('}') {
		name, err := b.sc.text()
		if err != nil || !b.sc.take(':') {
			return nil, &BatchError{"is not a stream batch", errSyntax}
		}
		if name == "Records" {
			if !b.sc.take('[') {
				return nil, &BatchError{Reason: "its Records are no list"}
			}
			return b, nil
		}
		if _, err := b.sc.skip(); err != nil || !b.sc.take(',') && b.sc.peek() != '}' {
			return nil, &BatchError{"is not a stream batch", errSyntax}
		}
	}
	return nil, &BatchError{Reason: "has no Records"}
}

// next decodes a record; nil: there is none, or b.err. The change is valid until the next call.
func (b *batchReader) next() *Change {
	if !b.more() {
		return nil
	}
	begin := b.sc.pos
	if err := b.decoder.decodeFrom(&b.sc, &b.change); err != nil {
		b.sc.pos = begin
		record, ok := b.skipRecord()
		if !ok {
			return nil
		}
		b.change = Change{text: record, Err: asUnreadable(err)}
		salvage(record, &b.change)
		return &b.change
	}
	b.change.text = b.sc.s[begin:b.sc.pos]
	return &b.change
}

// skip passes over a record and returns its sequence number; false: there is none, or b.err.
func (b *batchReader) skip() (sequence string, more bool) {
	if !b.more() {
		return "", false
	}
	record, ok := b.skipRecord()
	if !ok {
		return "", false
	}
	var c Change
	salvage(record, &c)
	return c.Sequence, true
}

func (b *batchReader) skipRecord() (string, bool) {
	record, err := b.sc.skip()
	if err != nil {
		b.fail()
	}
	return record, err == nil
}

func (b *batchReader) fail() { b.ended, b.err = true, &BatchError{"is not a stream batch", errSyntax} }

// more moves to the next record, or behind the batch.
func (b *batchReader) more() bool {
	switch {
	case b.ended:
		return false
	case b.sc.take(']'):
		b.ended = true
		b.close()
		return false
	case b.begun && !b.sc.take(','):
		b.fail()
		return false
	}
	b.begun = true
	b.sc.peek()
	return true
}

// close reads what follows the records. A second list of them would be lost unread.
func (b *batchReader) close() {
	for b.sc.take(',') {
		name, err := b.sc.text()
		if err != nil || name == "Records" || !b.sc.take(':') {
			b.fail()
			return
		}
		if _, err := b.sc.skip(); err != nil {
			b.fail()
			return
		}
	}
	if !b.sc.take('}') || b.sc.peek() != 0 {
		b.fail()
	}
}

// recordDecoder decodes one record after the other into the same memory: a Change is valid until the next one is read.
type recordDecoder struct {
	sc       *scanner
	old, new Image
	data     []byte  // of binary values
	maps     mapPool // of documents
}

// decodeFrom reads the record at which sc stands.
func (d *recordDecoder) decodeFrom(sc *scanner, c *Change) error {
	*c = Change{}
	d.sc, d.data = sc, d.data[:0]
	d.maps.reset()
	err := d.sc.object(func(name string) error { return d.member(name, c) })
	if err == nil && c.Keys == (schema.Key{}) {
		err = &UnreadableError{Rule: "the record has no keys"}
	}
	return err
}

func asUnreadable(err error) error {
	if u, ok := errors.AsType[*UnreadableError](err); ok {
		return u
	}
	return &UnreadableError{Rule: "the record " + err.Error()}
}

func (d *recordDecoder) member(name string, c *Change) (err error) {
	switch name {
	case "eventName":
		c.Op, err = d.sc.text()
	case "eventSourceARN":
		c.Stream, err = d.sc.text()
	case "userIdentity":
		c.TTL, err = d.identity()
	case "dynamodb":
		err = d.sc.object(func(name string) error { return d.content(name, c) })
	default:
		_, err = d.sc.skip()
	}
	return err
}

// identity tells whether DynamoDB itself made the change. Lambda writes the names small, the stream's own API large.
func (d *recordDecoder) identity() (ttl bool, err error) {
	if d.sc.null() {
		return false, nil
	}
	service, dynamodb := false, false
	err = d.sc.object(func(name string) error {
		value, err := d.sc.skip()
		switch name {
		case "type", "Type":
			service = value == `"`+ttlType+`"`
		case "principalId", "PrincipalId":
			dynamodb = value == `"`+ttlPrincipal+`"`
		}
		return err
	})
	return service && dynamodb, err
}

func (d *recordDecoder) content(name string, c *Change) (err error) {
	switch name {
	case "Keys", "SequenceNumber", "ApproximateCreationDateTime":
		if d.sc.null() { // as good as missing
			return nil
		}
	}
	switch name {
	case "Keys":
		err = d.keys(c)
	case "NewImage":
		d.new, err = d.image(d.new)
		c.New = d.new
	case "OldImage":
		d.old, err = d.image(d.old)
		c.Old = d.old
	case "SequenceNumber":
		c.Sequence, err = d.sc.text()
	case "ApproximateCreationDateTime":
		var seconds string
		if seconds, err = d.sc.number(); err == nil {
			c.Time = recordTime(seconds)
		}
	default:
		_, err = d.sc.skip()
	}
	return err
}

// recordTime reads epoch seconds, whole or with a fraction; zero for what is no time.
func recordTime(seconds string) time.Time {
	if n, err := strconv.ParseInt(seconds, 10, 64); err == nil {
		return plausible(time.Unix(n, 0).UTC())
	}
	f, err := strconv.ParseFloat(seconds, 64)
	if err != nil || f < 0 || f > 1e11 {
		return time.Time{}
	}
	return plausible(time.UnixMilli(int64(f * 1e3)).UTC())
}

// plausible returns t, or zero for a time before DynamoDB existed: an unset field, or seconds taken for milliseconds.
func plausible(t time.Time) time.Time {
	if t.Year() < 2012 || t.Year() > 9999 {
		return time.Time{}
	}
	return t
}

func (d *recordDecoder) keys(c *Change) error {
	return d.sc.object(func(name string) error {
		v, err := d.value(0)
		switch {
		case err != nil:
			return within(name, err)
		case name == schema.PK && v.Type == schema.TypeString:
			c.Keys.PK = v.Text
		case name == schema.SK && v.Type == schema.TypeString:
			c.Keys.SK = v.Text
		}
		return nil
	})
}

// image reads an item into the memory of im; null is no image.
func (d *recordDecoder) image(im Image) (Image, error) {
	if d.sc.null() {
		return nil, nil
	}
	if im == nil {
		im = make(Image, 0, 48)
	}
	im = im[:0]
	err := d.sc.object(func(name string) error {
		v, err := d.value(0)
		im = append(im, Attr{Name: name, Value: v})
		return within(name, err)
	})
	return im, err
}

// within names the attribute that an error is about, unless it is named already.
func within(name string, err error) error {
	if err == nil {
		return nil
	}
	if u, ok := errors.AsType[*UnreadableError](err); ok && u.Attr != "" {
		return u
	}
	return &UnreadableError{knownAttr(name), err.Error()}
}

// knownAttr returns the names of our own attributes: others may hold anything, and errors hold no data.
func knownAttr(name string) string {
	for _, known := range attrNames {
		if name == known {
			return name
		}
	}
	switch name {
	case schema.PK, schema.SK, schema.AFormat, schema.AQuotaID, schema.AGranted, schema.ARemaining, schema.AObsID, schema.AResultRef:
		return name
	}
	return "another attribute"
}

var (
	errNoTag      = errors.New("must have one type tag")
	errUnknownTag = errors.New("has an unknown type tag")
	errBase64     = errors.New("is not base64")
)

// value reads one attribute value: an object with exactly one type tag.
func (d *recordDecoder) value(depth int) (schema.Value, error) {
	var v schema.Value
	if depth > maxDepth {
		return v, errDepth
	}
	if !d.sc.take('{') || d.sc.peek() != '"' {
		return v, errNoTag
	}
	tag, err := d.sc.text()
	if err != nil {
		return v, err
	}
	if !d.sc.take(':') {
		return v, errSyntax
	}
	if v, err = d.tagged(tag, depth); err != nil {
		return v, err
	}
	if !d.sc.take('}') {
		return v, errNoTag
	}
	return v, nil
}

func (d *recordDecoder) tagged(tag string, depth int) (v schema.Value, err error) {
	switch tag {
	case "S":
		v.Type = schema.TypeString
		v.Text, err = d.sc.text()
	case "N":
		v.Type = schema.TypeNumber
		v.Text, err = d.sc.text()
	case "B":
		v.Type = schema.TypeBinary
		v.Data, err = d.binary()
	case "BOOL":
		v.Type = schema.TypeBool
		v.Bool, err = d.boolean()
	case "M":
		v.Type = schema.TypeMap
		v.Map, err = d.document(depth)
	case "SS":
		v.Type = schema.TypeStringSet
		err = d.sc.array(func() error {
			s, err := d.sc.text()
			v.Set = append(v.Set, s)
			return err
		})
	case "L", "NS", "BS", "NULL":
		v.Text, err = d.sc.skip()
	default:
		err = errUnknownTag
	}
	return v, err
}

func (d *recordDecoder) binary() ([]byte, error) {
	text, err := d.sc.text()
	if err != nil {
		return nil, err
	}
	begin := len(d.data)
	data, err := base64.StdEncoding.AppendDecode(d.data, []byte(text))
	if err != nil {
		return nil, errBase64
	}
	d.data = data
	return data[begin:len(data):len(data)], nil
}

func (d *recordDecoder) boolean() (bool, error) {
	d.sc.peek()
	switch {
	case d.sc.literal("true"):
		return true, nil
	case d.sc.literal("false"):
		return false, nil
	}
	return false, errSyntax
}

func (d *recordDecoder) document(depth int) (map[string]schema.Value, error) {
	m := d.maps.get()
	err := d.sc.object(func(name string) error {
		v, err := d.value(depth + 1)
		m[name] = v
		return err
	})
	return m, err
}

// salvage looks in a record that could not be decoded for what it takes to report it: sequence number, keys, stream,
// operation and time.
func salvage(record string, c *Change) {
	var keys, sequence string
	sc := scanner{s: record}
	_ = sc.object(func(name string) error {
		if name != "dynamodb" {
			value, err := sc.skip()
			switch name {
			case "eventSourceARN":
				c.Stream = unquoted(value)
			case "eventName":
				c.Op = unquoted(value)
			}
			return err
		}
		return sc.object(func(name string) error {
			value, err := sc.skip()
			switch name {
			case "SequenceNumber":
				sequence = unquoted(value)
			case "Keys":
				keys = value
			case "ApproximateCreationDateTime":
				c.Time = recordTime(value)
			}
			return err
		})
	})
	c.Sequence = sequence
	if d := (&recordDecoder{sc: &scanner{s: keys}}); keys != "" {
		var found Change
		if d.keys(&found) == nil {
			c.Keys = found.Keys
		}
	}
}

// unquoted returns the string that text is, or "".
func unquoted(text string) string {
	sc := scanner{s: text}
	s, err := sc.text()
	if err != nil {
		return ""
	}
	return s
}
