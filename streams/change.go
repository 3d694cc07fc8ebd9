package streams

import (
	"encoding/base64"
	"slices"
	"strconv"
	"strings"
	"time"

	dynamodbtypes "github.com/aws/aws-sdk-go-v2/service/dynamodb/types"
	streamtypes "github.com/aws/aws-sdk-go-v2/service/dynamodbstreams/types"

	"toolledger/internal/schema"
)

// The operations of a stream record.
const (
	OpInsert = "INSERT"
	OpModify = "MODIFY"
	OpRemove = "REMOVE"
)

// Change is one stream record: what an item was before and after one write. Nothing in it is trusted.
type Change struct {
	Op       string // OpInsert, OpModify, OpRemove
	Keys     schema.Key
	Old, New Image     // nil: the record has none
	Sequence string    // decimal, of differing length: compare as integers
	Time     time.Time // to the second, by DynamoDB's clock; zero where the record has none
	TTL      bool      // DynamoDB itself removed the item, because its time to live had passed
	Stream   string    // ARN of the stream
	Err      error     // why the record could not be decoded; only Sequence, Keys and Stream may be set then

	record *streamtypes.Record // the record as a client read it
	text   string              // the record as Lambda delivered it
}

// Attr is one attribute of an item.
type Attr = schema.Attr

// Image is an item as a stream record shows it. nil means that the record has none; an item without attributes is not nil.
type Image = schema.Image

// sameImage tells whether two images hold the same attributes, in whatever order.
func sameImage(im, other Image) bool {
	if len(im) != len(other) {
		return false
	}
	byName := make(map[string]*schema.Value, len(im))
	for i := range im {
		byName[im[i].Name] = &im[i].Value
	}
	for i := range other {
		v, ok := byName[other[i].Name]
		if !ok || !equalValues(v, &other[i].Value) {
			return false
		}
	}
	return true
}

func equalValues(a, b *schema.Value) bool {
	if a.Type != b.Type || a.Text != b.Text || a.Bool != b.Bool || !slices.Equal(a.Data, b.Data) || len(a.Map) != len(b.Map) {
		return false
	}
	for name, inner := range a.Map {
		other, ok := b.Map[name]
		if !ok || !equalValues(&inner, &other) {
			return false
		}
	}
	return sameSet(a.Set, b.Set)
}

// sameSet compares sets; DynamoDB keeps no order in them.
func sameSet(a, b []string) bool {
	if len(a) != len(b) || slices.Equal(a, b) {
		return len(a) == len(b)
	}
	a, b = slices.Sorted(slices.Values(a)), slices.Sorted(slices.Values(b))
	return slices.Equal(a, b)
}

// ImageOf makes an image of an item that a DynamoDB client returned; nil stays nil.
func ImageOf(item map[string]dynamodbtypes.AttributeValue) Image {
	if item == nil {
		return nil
	}
	im := make(Image, 0, len(item))
	for name, av := range item {
		im = append(im, Attr{Name: name, Value: schema.ValueOf(av)})
	}
	return im
}

// ChangeOf makes a Change of a record that a DynamoDB Streams client returned; stream is the stream's ARN. A record
// without content comes with Err set.
func ChangeOf(stream string, r *streamtypes.Record) Change {
	var conv recordConverter
	var c Change
	conv.convert(stream, r, &c)
	return c
}

// recordConverter converts one record after the other into the same memory: a Change is valid until the next one.
type recordConverter struct {
	old, new Image
	maps     mapPool
}

func (v *recordConverter) convert(stream string, r *streamtypes.Record, c *Change) {
	*c = Change{Op: string(r.EventName), Stream: stream, record: r}
	v.maps.reset()
	if id := r.UserIdentity; id != nil {
		c.TTL = id.Type != nil && *id.Type == ttlType && id.PrincipalId != nil && *id.PrincipalId == ttlPrincipal
	}
	d := r.Dynamodb
	if d == nil {
		c.Err = &UnreadableError{Rule: "the record has no content"}
		return
	}
	if d.SequenceNumber != nil {
		c.Sequence = *d.SequenceNumber
	}
	if d.ApproximateCreationDateTime != nil {
		c.Time = plausible(d.ApproximateCreationDateTime.UTC())
	}
	c.Keys = recordKeys(r)
	if d.OldImage != nil {
		v.old = v.image(v.old, d.OldImage)
		c.Old = v.old
	}
	if d.NewImage != nil {
		v.new = v.image(v.new, d.NewImage)
		c.New = v.new
	}
}

func recordKeys(r *streamtypes.Record) schema.Key {
	if r.Dynamodb == nil {
		return schema.Key{}
	}
	return schema.Key{PK: stringOf(r.Dynamodb.Keys[schema.PK]), SK: stringOf(r.Dynamodb.Keys[schema.SK])}
}

// mapPool lends maps that are all given back at once.
type mapPool struct {
	maps []map[string]schema.Value
	lent int
}

func (p *mapPool) reset() { p.lent = 0 }

func (p *mapPool) get() map[string]schema.Value {
	if p.lent == len(p.maps) {
		p.maps = append(p.maps, make(map[string]schema.Value))
	}
	m := p.maps[p.lent]
	p.lent++
	clear(m)
	return m
}

// A removal by time to live is told by who did it. Streams of global tables show that in the removing Region only.
const (
	ttlType      = "Service"
	ttlPrincipal = "dynamodb.amazonaws.com"
)

func stringOf(av streamtypes.AttributeValue) string {
	if s, ok := av.(*streamtypes.AttributeValueMemberS); ok {
		return s.Value
	}
	return ""
}

func (v *recordConverter) image(im Image, item map[string]streamtypes.AttributeValue) Image {
	if im == nil {
		im = make(Image, 0, max(len(item), 48))
	}
	im = im[:0]
	for name, av := range item {
		im = append(im, Attr{Name: name, Value: v.value(av)})
	}
	return im
}

// value turns a value of the Streams client, whose types are not those of the DynamoDB client, into a schema.Value.
// What no item of ours holds becomes TypeOther with a text that differs where the values do.
func (v *recordConverter) value(av streamtypes.AttributeValue) schema.Value {
	switch a := av.(type) {
	case *streamtypes.AttributeValueMemberS:
		return schema.Value{Type: schema.TypeString, Text: a.Value}
	case *streamtypes.AttributeValueMemberN:
		return schema.Value{Type: schema.TypeNumber, Text: a.Value}
	case *streamtypes.AttributeValueMemberB:
		return schema.Value{Type: schema.TypeBinary, Data: a.Value}
	case *streamtypes.AttributeValueMemberBOOL:
		return schema.Value{Type: schema.TypeBool, Bool: a.Value}
	case *streamtypes.AttributeValueMemberSS:
		return schema.Value{Type: schema.TypeStringSet, Set: a.Value}
	case *streamtypes.AttributeValueMemberM:
		m := v.maps.get()
		for name, inner := range a.Value {
			m[name] = v.value(inner)
		}
		return schema.Value{Type: schema.TypeMap, Map: m}
	case *streamtypes.AttributeValueMemberNS:
		return otherSet("NS", a.Value)
	case *streamtypes.AttributeValueMemberBS:
		texts := make([]string, len(a.Value))
		for i, b := range a.Value {
			texts[i] = base64.StdEncoding.EncodeToString(b)
		}
		return otherSet("BS", texts)
	case *streamtypes.AttributeValueMemberL:
		inner := v.maps.get()
		for i, e := range a.Value {
			inner[strconv.Itoa(i)] = v.value(e)
		}
		return schema.Value{Text: "L", Map: inner}
	case *streamtypes.AttributeValueMemberNULL:
		return schema.Value{Text: "NULL"}
	}
	return schema.Value{}
}

func otherSet(tag string, texts []string) schema.Value {
	return schema.Value{Text: tag, Set: slices.Clone(texts)}
}

// compareSequence compares sequence numbers: decimal strings of differing length. What is no number sorts first.
func compareSequence(a, b string) int {
	a, b = strings.TrimLeft(a, "0"), strings.TrimLeft(b, "0")
	if len(a) != len(b) {
		return len(a) - len(b)
	}
	return strings.Compare(a, b)
}
