package canon

import (
	"encoding/json"
	"testing"
)

// typicalArgs is what a model fills in for a tool that opens a pull request: about 200 bytes, keys as the schema has them.
const typicalArgs = `{"repo":"acme/api","branch":"fix/login-timeout","title":"Fix the login time-out","body":"Raises it to 30 s.\nSee #4711.",` +
	`"labels":["bug","agent"],"draft":false,"reviewers":2,"cost":1.50}`

// A call's hash costs two allocations (the argument list and one string for all names), whatever the order of the keys.
func TestAllocations(t *testing.T) {
	if raceDetector {
		t.Skip("allocations cannot be counted under the race detector")
	}
	args := []byte(typicalArgs)
	if n := testing.AllocsPerRun(200, func() { _, _ = HashIntent("create_pr", args) }); n > 2 {
		t.Errorf("HashIntent allocates %v times", n)
	}
	dst := make([]byte, 0, 512)
	if n := testing.AllocsPerRun(200, func() { _, _ = Append(dst, args) }); n > 0 {
		t.Errorf("Append into a large enough buffer allocates %v times", n)
	}
	intent, err := HashIntent("create_pr", args)
	if err != nil {
		t.Fatal(err)
	}
	if n := testing.AllocsPerRun(200, func() { EncodeArgHashes(intent.Args) }); n > 1 {
		t.Errorf("EncodeArgHashes allocates %v times", n)
	}
	if n := len(EncodeArgHashes(intent.Args)); n > 110 {
		t.Errorf("eight typical arguments are stored in %d bytes", n)
	}
}

func BenchmarkHashIntent(b *testing.B) {
	args := []byte(typicalArgs)
	b.SetBytes(int64(len(args)))
	b.ReportAllocs()
	for b.Loop() {
		if _, err := HashIntent("create_pr", args); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkAppend(b *testing.B) {
	args, dst := []byte(typicalArgs), make([]byte, 0, 512)
	b.SetBytes(int64(len(args)))
	b.ReportAllocs()
	for b.Loop() {
		if _, err := Append(dst, args); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkHashArgsStruct(b *testing.B) {
	var args struct {
		Repo      string      `json:"repo"`
		Branch    string      `json:"branch"`
		Title     string      `json:"title"`
		Body      string      `json:"body"`
		Labels    []string    `json:"labels"`
		Draft     bool        `json:"draft"`
		Reviewers int         `json:"reviewers"`
		Cost      json.Number `json:"cost"`
	}
	if err := json.Unmarshal([]byte(typicalArgs), &args); err != nil {
		b.Fatal(err)
	}
	b.ReportAllocs()
	for b.Loop() {
		if _, err := HashArgs("create_pr", &args); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkEncodeArgHashes(b *testing.B) {
	intent, err := HashIntent("create_pr", []byte(typicalArgs))
	if err != nil {
		b.Fatal(err)
	}
	b.ReportAllocs()
	for b.Loop() {
		EncodeArgHashes(intent.Args)
	}
}
