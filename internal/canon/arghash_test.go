package canon

import (
	"bytes"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

// reencode is what a row gives back.
func reencode(t interface{ Fatalf(string, ...any) }, args []ArgHash) []ArgHash {
	encoded := EncodeArgHashes(args)
	if len(encoded) > MaxEncodedBytes {
		t.Fatalf("%d arguments take %d bytes", len(args), len(encoded))
	}
	decoded, err := DecodeArgHashes(encoded)
	if err != nil {
		t.Fatalf("own encoding is refused: %v", err)
	}
	if again := EncodeArgHashes(decoded); !bytes.Equal(again, encoded) {
		t.Fatalf("encoding what was decoded gives %x, not %x", again, encoded)
	}
	return decoded
}

// object makes arguments of n names of the given length, all with the value v but for those in changed.
func object(n, nameBytes, v int, changed ...int) string {
	var members []string
	for i := range n {
		value := v
		if slices.Contains(changed, i) {
			value++
		}
		name := fmt.Sprintf("n%03d", i)
		members = append(members, fmt.Sprintf("%q:%d", name+strings.Repeat("x", max(nameBytes-len(name), 0)), value))
	}
	return "{" + strings.Join(members, ",") + "}"
}

// A conflict names the arguments of typical tools in full, however long these are; of tools with very many it says at least "…".
func TestStoredHashesNameWhatDiffers(t *testing.T) {
	for _, c := range []struct {
		args, nameBytes int
		named           bool
	}{{1, 3, true}, {12, 10, true}, {12, 14, true}, {12, 40, true}, {12, 300, true}, {17, 64, true}, {36, 4, false}, {500, 20, false}} {
		old := mustHash(t, "t", object(c.args, c.nameBytes, 1)).Args
		stored := reencode(t, old)
		if got := Differs(stored, old); got != nil {
			t.Errorf("%+v: differs from itself in %q", c, got)
		}
		for i := range c.args {
			changed := mustHash(t, "t", object(c.args, c.nameBytes, 1, i)).Args
			got := Differs(stored, changed)
			if len(got) != 1 || (got[0] != old[i].Name && (c.named || got[0] != ellipsis)) {
				t.Fatalf("%+v: change of %q reported as %q", c, old[i].Name, got)
			}
		}
	}
}

// What was removed or added is named too; a removed argument with a long name by its beginning.
func TestDiffersNamesAddedAndRemoved(t *testing.T) {
	old := mustHash(t, "t", `{"a":1,"b":2,"…":3}`).Args
	stored := reencode(t, old)
	got := Differs(stored, mustHash(t, "t", `{"b":2,"c":null}`).Args)
	if !slices.Equal(got, []string{"a", "c", "…"}) {
		t.Errorf("got %q", got)
	}
	long := strings.Repeat("ä", 100)
	stored = reencode(t, mustHash(t, "t", `{"`+long+`":1}`).Args)
	if got := Differs(stored, nil); !slices.Equal(got, []string{strings.Repeat("ä", 16) + "…"}) {
		t.Errorf("got %q", got)
	}
	if Differs(nil, nil) != nil {
		t.Error("nothing differs from nothing")
	}
}

// Two stored calls are compared by their folded entries too.
func TestDiffersSeesFoldedChange(t *testing.T) {
	old := reencode(t, mustHash(t, "t", object(60, 4, 1)).Args)
	if got := Differs(old, reencode(t, mustHash(t, "t", object(60, 4, 1, 59)).Args)); !slices.Equal(got, []string{ellipsis}) {
		t.Errorf("got %q", got)
	}
	if got := Differs(old, reencode(t, mustHash(t, "t", object(60, 4, 1)).Args)); got != nil {
		t.Errorf("got %q", got)
	}
}

// Names whose short hashes collide, which a caller can search for, are still told apart where they are known in full.
func TestDiffersTellsCollidingNamesApart(t *testing.T) {
	seen := map[[nameHashBytes]byte]string{}
	for i := range 2_000_000 {
		name := fmt.Sprint(i)
		hash := ArgHash{Name: name}.hashOfName()
		other, ok := seen[hash]
		if !ok {
			seen[hash] = name
			continue
		}
		a, b := mustHash(t, "t", `{"`+name+`":1}`).Args, mustHash(t, "t", `{"`+other+`":1}`).Args
		b[0].Hash = a[0].Hash
		if got := Differs(a, b); len(got) != 2 {
			t.Errorf("%q and %q taken for one argument: %q", name, other, got)
		}
		return
	}
	t.Fatal("no collision found")
}

// For any two sets of arguments the report from full hashes is exact, and from stored ones it names nothing that is equal and
// leaves nothing out but behind "…".
func TestDiffersAgainstMaps(t *testing.T) {
	name := rapid.OneOf(rapid.StringMatching(`[a-z_]{0,3}`), rapid.StringMatching(`(same_long_beginning_of_a_name_|é){2,6}[a-c]`))
	objects := rapid.MapOfN(name, rapid.IntRange(0, 2), 0, 60)
	rapid.Check(t, func(t *rapid.T) {
		a := objects.Draw(t, "a")
		b := maps.Clone(a)
		for _, n := range rapid.SliceOfN(name, 0, 4).Draw(t, "set") {
			b[n] = 7
		}
		for n := range b {
			if rapid.IntRange(0, 15).Draw(t, "drop") == 0 {
				delete(b, n)
			}
		}
		var want []string
		for n := range a {
			if v, ok := b[n]; !ok || v != a[n] {
				want = append(want, n)
			}
		}
		for n := range b {
			if _, ok := a[n]; !ok {
				want = append(want, n)
			}
		}
		slices.Sort(want)
		before, now := hashOf(t, a), hashOf(t, b)
		if got := Differs(before, now); !slices.Equal(got, want) {
			t.Fatalf("differs in %q, want %q", got, want)
		}
		for _, got := range [][]string{
			Differs(reencode(t, before), now), Differs(before, reencode(t, now)), Differs(reencode(t, before), reencode(t, now)),
		} {
			if (len(got) == 0) != (len(want) == 0) && !slices.Contains(got, ellipsis) {
				t.Fatalf("stored: differs in %q, want %q", got, want)
			}
			if slices.Contains(got, ellipsis) {
				continue
			}
			if !covers(got, want) {
				t.Fatalf("stored: differs in %q, want %q", got, want)
			}
		}
	})
}

// covers says whether each name of want is in got, whole or by its beginning, and each name of got stands for one of want.
func covers(got, want []string) bool {
	stands := func(g, w string) bool {
		beginning, cut := strings.CutSuffix(g, ellipsis)
		return g == w || (cut && strings.HasPrefix(w, beginning))
	}
	for _, w := range want {
		if !slices.ContainsFunc(got, func(g string) bool { return stands(g, w) }) {
			return false
		}
	}
	for _, g := range got {
		if !slices.ContainsFunc(want, func(w string) bool { return stands(g, w) }) {
			return false
		}
	}
	return true
}

func hashOf(t *rapid.T, args map[string]int) []ArgHash {
	intent, err := HashArgs("t", args)
	if err != nil {
		t.Fatal(err)
	}
	return intent.Args
}

// Bytes that were not written by EncodeArgHashes are refused, never a panic.
func TestDecodeArgHashesRefuses(t *testing.T) {
	good := EncodeArgHashes(mustHash(t, "t", object(60, 4, 1)).Args)
	for cut := 1; cut < len(good); cut++ {
		if args, err := DecodeArgHashes(good[:cut]); err == nil && len(args) == 0 {
			t.Errorf("cut at %d gives nothing and no error", cut)
		}
	}
	for _, bad := range [][]byte{
		{0},
		{1, 'a'},
		{1, 0xFF, 1, 2, 3, 4, 5, 6},
		append(bytes.Clone(good), 0, 1, 2, 3, 4, 5, 6), make([]byte, 7*40),
		append([]byte{abbrevBit | 33}, make([]byte, 43)...),
		{foldMark, 1},
		{abbrevBit, 1, 2, 3, 4, 5, 6, 7},
	} {
		if _, err := DecodeArgHashes(bad); !errors.Is(err, ErrArgHashes) {
			t.Errorf("%x: %v", bad, err)
		}
	}
	if args, err := DecodeArgHashes(nil); args != nil || err != nil || EncodeArgHashes(nil) != nil {
		t.Error("nothing does not encode as nothing")
	}
}

// FuzzDecodeArgHashes: any bytes decode or are refused, and what decodes encodes to something that decodes.
func FuzzDecodeArgHashes(f *testing.F) {
	f.Add([]byte{})
	f.Add(EncodeArgHashes(mustHash(f, "t", object(12, 40, 1)).Args))
	f.Add(EncodeArgHashes(mustHash(f, "t", object(60, 4, 1)).Args))
	f.Fuzz(func(t *testing.T, encoded []byte) {
		args, err := DecodeArgHashes(encoded)
		if err != nil {
			return
		}
		if again, err := DecodeArgHashes(EncodeArgHashes(args)); err != nil || len(again) != len(args) {
			t.Fatalf("%x: %v", encoded, err)
		}
	})
}
