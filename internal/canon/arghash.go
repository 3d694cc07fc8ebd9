package canon

import (
	"crypto/sha256"
	"fmt"
	"slices"
	"strings"
	"unicode/utf8"
)

// MaxEncodedBytes is the most that EncodeArgHashes returns, whatever the arguments are.
const MaxEncodedBytes = 256

const (
	ellipsis      = "…"
	nameHashBytes = 4
	foldBytes     = 1 + ArgHashBytes
)

// argKind says how much of an argument's name is known.
type argKind uint8

const (
	full   argKind = iota // the whole name
	abbrev                // its beginning and a hash
	folded                // several arguments in one entry
)

// The first byte of an entry: up to maxFullName the length of a full name; abbrevBit and the length of a beginning; or foldMark.
const (
	maxFullName = 0x7F
	abbrevBit   = 0x80
	foldMark    = 0xFF
)

// prefixSteps are the lengths of a name's beginning that are tried until all entries fit, longest first.
var prefixSteps = [...]int{32, 24, 16, 12, 10, 8, 6, 4}

// EncodeArgHashes packs argument hashes for one attribute of a row: at most MaxEncodedBytes, nil for none. An entry is a byte
// that says what follows, the name, and the hash. Names are whole where all fit (12 arguments with names of 14 bytes do);
// else long names become a beginning and a 4-byte hash of the whole name, by which Differs finds them again (any 17 arguments
// fit so); else the last arguments in canonical order are folded into one entry, and Differs reports them as "…".
func EncodeArgHashes(args []ArgHash) []byte {
	if len(args) == 0 {
		return nil
	}
	prefix, size := maxFullName, encodedBytes(args, maxFullName)
	for _, step := range prefixSteps {
		if size <= MaxEncodedBytes {
			break
		}
		prefix, size = step, encodedBytes(args, step)
	}
	if size <= MaxEncodedBytes {
		return appendEntries(make([]byte, 0, size), args, prefix)
	}
	kept, size := 0, foldBytes
	for _, arg := range args {
		n := entryBytes(arg, prefix)
		if size+n > MaxEncodedBytes {
			break
		}
		size += n
		kept++
	}
	dst := appendEntries(make([]byte, 0, size), args[:kept], prefix)
	hash := foldHash(args[kept:])
	return append(append(dst, foldMark), hash[:]...)
}

func encodedBytes(args []ArgHash, prefix int) int {
	size := 0
	for _, arg := range args {
		size += entryBytes(arg, prefix)
	}
	return size
}

// beginning returns what is stored of a name, and whether that is less than the name. A name is only cut where that saves bytes.
func (a ArgHash) beginning(prefix int) (string, bool) {
	switch {
	case a.kind != full:
		return strings.TrimSuffix(a.Name, ellipsis), true
	case len(a.Name) <= min(prefix+nameHashBytes, maxFullName):
		return a.Name, false
	default:
		return a.Name[:runeBoundary(a.Name, min(prefix, prefixSteps[0]))], true
	}
}

func entryBytes(arg ArgHash, prefix int) int {
	if arg.kind == folded {
		return foldBytes
	}
	name, cut := arg.beginning(prefix)
	if cut {
		return 1 + len(name) + nameHashBytes + ArgHashBytes
	}
	return 1 + len(name) + ArgHashBytes
}

func appendEntries(dst []byte, args []ArgHash, prefix int) []byte {
	for _, arg := range args {
		name, cut := arg.beginning(prefix)
		switch {
		case arg.kind == folded:
			dst = append(dst, foldMark)
		case cut:
			hash := arg.hashOfName()
			dst = append(append(dst, abbrevBit|byte(len(name))), name...)
			dst = append(dst, hash[:]...)
		default:
			dst = append(append(dst, byte(len(name))), name...)
		}
		dst = append(dst, arg.Hash[:]...)
	}
	return dst
}

// hashOfName is the beginning of the SHA-256 of an argument's whole name.
func (a ArgHash) hashOfName() (hash [nameHashBytes]byte) {
	if a.kind == abbrev {
		return a.nameHash
	}
	sum := sha256.Sum256([]byte(a.Name))
	copy(hash[:], sum[:])
	return hash
}

// foldHash stands for several arguments; the name hash delimits, since all parts have a fixed length.
func foldHash(args []ArgHash) (hash [ArgHashBytes]byte) {
	all := make([]byte, 0, len(args)*(nameHashBytes+ArgHashBytes))
	for _, arg := range args {
		name := arg.hashOfName()
		all = append(append(all, name[:]...), arg.Hash[:]...)
	}
	sum := sha256.Sum256(all)
	copy(hash[:], sum[:])
	return hash
}

// DecodeArgHashes reads what EncodeArgHashes has written. Returns [ErrArgHashes], wrapped, for anything else.
func DecodeArgHashes(encoded []byte) ([]ArgHash, error) {
	if len(encoded) > MaxEncodedBytes {
		return nil, fmt.Errorf("%w: %d bytes", ErrArgHashes, len(encoded))
	}
	var args []ArgHash
	for rest := encoded; len(rest) > 0; {
		arg, n, ok := decodeEntry(rest)
		if !ok || (arg.kind == folded && n < len(rest)) {
			return nil, fmt.Errorf("%w: entry at byte %d", ErrArgHashes, len(encoded)-len(rest))
		}
		args = append(args, arg)
		rest = rest[n:]
	}
	return args, nil
}

// decodeEntry reads the entry at the beginning of src and returns its length.
func decodeEntry(src []byte) (arg ArgHash, n int, ok bool) {
	nameBytes := int(src[0])
	switch {
	case src[0] == foldMark:
		arg.kind, nameBytes = folded, 0
	case src[0]&abbrevBit != 0:
		arg.kind, nameBytes = abbrev, int(src[0]&^abbrevBit)
	}
	n = 1 + nameBytes + ArgHashBytes
	if arg.kind == abbrev {
		n += nameHashBytes
	}
	if n > len(src) || (arg.kind == abbrev && nameBytes > prefixSteps[0]) {
		return ArgHash{}, 0, false
	}
	arg.Name = string(src[1 : 1+nameBytes])
	if !utf8.ValidString(arg.Name) {
		return ArgHash{}, 0, false
	}
	if arg.kind != full {
		arg.Name += ellipsis
	}
	if arg.kind == abbrev {
		copy(arg.nameHash[:], src[1+nameBytes:])
	}
	copy(arg.Hash[:], src[n-ArgHashBytes:])
	return arg, n, true
}

// Differs returns the names of the arguments that were added, removed or changed between two calls, sorted, each once; nil if
// there are none. It never returns values. Either side may come from DecodeArgHashes: an abbreviated name that the other
// side has in full is given in full, and what has been folded into one entry is reported as "…".
func Differs(before, now []ArgHash) []string {
	d := differ{index: make(map[[nameHashBytes]byte][]int, len(before)), old: before, matched: make([]bool, len(before))}
	for i, arg := range before {
		if arg.kind == folded {
			d.oldFold, d.matched[i] = &before[i], true
			continue
		}
		hash := arg.hashOfName()
		d.index[hash] = append(d.index[hash], i)
	}
	for i, arg := range now {
		if arg.kind == folded {
			d.newFold = &now[i]
			continue
		}
		d.match(arg)
	}
	return d.result()
}

// differ matches the arguments of two calls by name.
type differ struct {
	old              []ArgHash
	index            map[[nameHashBytes]byte][]int // old, by hash of name
	matched          []bool                        // old
	oldFold, newFold *ArgHash
	added            []ArgHash
	names            []string
}

func (d *differ) match(arg ArgHash) {
	for _, i := range d.index[arg.hashOfName()] {
		old := d.old[i]
		if d.matched[i] || (old.kind == full && arg.kind == full && old.Name != arg.Name) {
			continue
		}
		d.matched[i] = true
		if old.Hash != arg.Hash {
			name := arg.Name
			if old.kind == full {
				name = old.Name
			}
			d.names = append(d.names, name)
		}
		return
	}
	d.added = append(d.added, arg)
}

// result adds what has no match. Where the other side is folded, that may be what was folded there.
func (d *differ) result() []string {
	var removed []ArgHash
	for i, arg := range d.old {
		if !d.matched[i] {
			removed = append(removed, arg)
		}
	}
	switch {
	case d.oldFold == nil && d.newFold == nil:
		for _, arg := range slices.Concat(removed, d.added) {
			d.names = append(d.names, arg.Name)
		}
	case d.newFold == nil:
		d.addRest(removed, foldHash(d.added) == d.oldFold.Hash)
	case d.oldFold == nil:
		d.addRest(d.added, foldHash(removed) == d.newFold.Hash)
	default:
		d.addRest(nil, d.oldFold.Hash == d.newFold.Hash && len(removed)+len(d.added) == 0)
	}
	slices.Sort(d.names)
	return slices.Compact(d.names)
}

func (d *differ) addRest(named []ArgHash, foldEqual bool) {
	for _, arg := range named {
		d.names = append(d.names, arg.Name)
	}
	if !foldEqual {
		d.names = append(d.names, ellipsis)
	}
}
