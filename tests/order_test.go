package tests_test

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"maps"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

const module = "toolledger"

// library stands for the internal packages that libraries may import: all but those that run, draw or test something.
const library = "internal/<library>"

var noLibrary = []string{"internal/stack", "internal/progress", "internal/eventcheck", "internal/ops", "internal/ops/picture"}

// rule says which of our packages a package may import; "x/..." is x and all below. Test files may import more: all but cmd.
type rule struct {
	pkg string
	may []string
}

// order is the design's. The first rule that fits a package holds for it.
var order = []rule{
	{"metrics", nil},
	{"streams/events", nil},
	{"streams/events/internal/...", []string{"streams/events"}},
	{"streams/events/schemas", []string{"streams/events"}},
	{"internal/schema", nil},
	{"internal/canon", nil},
	{"internal/progress", nil},
	{"internal/jitter", nil},
	{"internal/protocol", []string{"internal/schema", "internal/canon", "internal/jitter"}},
	{"internal/stack", []string{"internal/schema"}},
	{"internal/eventcheck", []string{"streams/events", "streams/events/schemas"}},
	{"internal/ops/...", []string{"metrics", "streams/events/...", "internal/ops"}},
	{"internal/...", []string{library}},
	{"writers", []string{library}},
	{"writers/api", []string{"writers", library}},
	{"writers/results", []string{"writers", library}},
	{"writers/writerstest", []string{"writers", "internal/stack", library}},
	{"writers/lambda/...", []string{"writers", "writers/api", "writers/results", "metrics", library}},
	{"streams", []string{"streams/events", "metrics", "writers", library}},
	{"streams/lambda/...", []string{"streams", "streams/events", "metrics", library}},
	{"sweeper", []string{"metrics", "writers", library}},
	{"sweeper/lambda/...", []string{"sweeper", "metrics", "writers", "writers/results", library}},
	{"cmd/...", []string{"metrics", "writers/...", "streams/...", "sweeper/...", "internal/..."}},
	// What examples import is what users can import.
	{"examples/...", []string{"examples/...", "metrics", "writers/...", "streams/...", "sweeper"}},
	{"tests/...", []string{"tests/...", "metrics", "writers/...", "streams/...", "sweeper/...", "internal/...", "examples/..."}},
	{"tools/...", nil},
}

// standardOnly are the packages that import nothing but the standard library.
var standardOnly = []string{"streams/events", "streams/events/schemas"}

// mains are the places whose main packages read the environment, the clock and print.
var mains = []string{"cmd/...", "examples/...", "tests/...", "tools/...", "writers/lambda/...", "streams/lambda/...", "sweeper/lambda/..."}

// banned are the calls that belong in mains: import path, name, and what to do instead. As values they are allowed: a
// Config's Now is time.Now by default.
var banned = []struct{ path, name, instead string }{
	{"os", "Getenv", "take it as a field of a Config"},
	{"os", "LookupEnv", "take it as a field of a Config"},
	{"os", "Environ", "take it as a field of a Config"},
	{"os", "ExpandEnv", "take it as a field of a Config"},
	{"os", "Setenv", "pass it to the child process"},
	{"github.com/aws/aws-sdk-go-v2/config", "LoadDefaultConfig", "take the client"},
	{"time", "Now", "call Config.Now"},
	{"fmt", "Print", "log, or return it"},
	{"fmt", "Printf", "log, or return it"},
	{"fmt", "Println", "log, or return it"},
}

// source is one Go file of the module.
type source struct {
	file   string // slash path from the module's root
	syntax *ast.File
}

func (s source) pkg() string { return path.Dir(s.file) }

func (s source) test() bool { return strings.HasSuffix(s.file, "_test.go") }

// imports returns what the file imports, by the name it is used under.
func (s source) imports() map[string]string {
	byName := map[string]string{}
	for _, spec := range s.syntax.Imports {
		to := strings.Trim(spec.Path.Value, `"`)
		name := path.Base(to)
		if spec.Name != nil {
			name = spec.Name.Name
		}
		if name == "_" || name == "." {
			name += to
		}
		byName[name] = to
	}
	return byName
}

// Promise: packages depend on each other in the order of the design, so that a change has effects in one direction only.
func TestImportOrder(t *testing.T) {
	for _, v := range orderViolations(moduleSources(t)) {
		t.Error(v)
	}
}

// Promise: only mains read the environment, the clock and write to stdout: whoever embeds the library decides these.
func TestBannedUses(t *testing.T) {
	for _, v := range bannedUses(moduleSources(t)) {
		t.Error(v)
	}
}

// Promise: the check of the order sees what it is there for.
func TestImportOrderNoticesViolations(t *testing.T) {
	for name, tt := range map[string]struct {
		file    string
		imports string
		want    string // "" means allowed
	}{
		"metrics is at the bottom":          {"metrics/x.go", `"toolledger/internal/schema"`, "metrics must not import internal/schema"},
		"schema is at the bottom":           {"internal/schema/x.go", `"toolledger/internal/canon"`, "internal/schema must not import internal/canon"},
		"canon is at the bottom":            {"internal/canon/x.go", `"toolledger/internal/schema"`, "internal/canon must not import"},
		"protocol imports schema":           {"internal/protocol/x.go", `"toolledger/internal/schema"`, ""},
		"protocol imports no others":        {"internal/protocol/x.go", `"toolledger/metrics"`, "internal/protocol must not import metrics"},
		"internal never imports upwards":    {"internal/new/x.go", `"toolledger/writers"`, "internal/new must not import writers"},
		"streams not sweeper":               {"streams/x.go", `"toolledger/sweeper"`, "streams must not import sweeper"},
		"sweeper not streams":               {"sweeper/x.go", `"toolledger/streams"`, "sweeper must not import streams"},
		"sweeper not events":                {"sweeper/x.go", `"toolledger/streams/events"`, "sweeper must not import streams/events"},
		"sweeper asks writers' tools":       {"sweeper/x.go", `"toolledger/writers"`, ""},
		"writers not streams":               {"writers/x.go", `"toolledger/streams"`, "writers must not import streams"},
		"writers not stack":                 {"writers/x.go", `"toolledger/internal/stack"`, "writers must not import internal/stack"},
		"internal not stack":                {"internal/new/x.go", `"toolledger/internal/stack"`, "internal/new must not import internal/stack"},
		"no library draws dashboards":       {"streams/x.go", `"toolledger/internal/ops"`, "streams must not import internal/ops"},
		"ops knows no writers":              {"internal/ops/x.go", `"toolledger/writers"`, "internal/ops must not import writers"},
		"writerstest starts a stack":        {"writers/writerstest/x.go", `"toolledger/internal/stack"`, ""},
		"a function not stack":              {"writers/lambda/http/main.go", `"toolledger/internal/stack"`, "must not import internal/stack"},
		"nobody imports cmd":                {"tests/x_test.go", `"toolledger/cmd/toolledger"`, "tests must not import cmd/toolledger"},
		"not even from tests":               {"writers/x_test.go", `"toolledger/cmd/toolledger"`, "writers must not import cmd/toolledger"},
		"a package's tests start a stack":   {"writers/x_test.go", `"toolledger/internal/stack"`, ""},
		"examples use what is public":       {"examples/new/main.go", `"toolledger/internal/canon"`, "examples/new must not import internal/canon"},
		"events: standard library only":     {"streams/events/x.go", `"github.com/aws/smithy-go"`, "streams/events must import the standard library only"},
		"events: the standard library":      {"streams/events/x.go", `"encoding/json"`, ""},
		"its tests may look further":        {"streams/events/x_test.go", `"toolledger/internal/schema"`, ""},
		"a place that no rule knows":        {"helpers/x.go", `"fmt"`, "helpers: no rule says what it may import"},
		"an alias hides nothing":            {"streams/x.go", `s "toolledger/sweeper"`, "streams must not import sweeper"},
		"a blank import hides nothing":      {"streams/x.go", `_ "toolledger/sweeper"`, "streams must not import sweeper"},
		"two blank imports hide nothing":    {"streams/x.go", `_ "fmt"; import _ "toolledger/sweeper"; import _ "os"`, "streams must not import sweeper"},
		"a command uses everything but one": {"cmd/toolledger/x.go", `"toolledger/examples/prbot"`, "cmd/toolledger must not import examples/prbot"},
	} {
		t.Run(name, func(t *testing.T) {
			expect(t, orderViolations([]source{parse(t, tt.file, "package p\nimport "+tt.imports)}), tt.want)
		})
	}
}

// Promise: the check of uses sees calls under any name of the import, and lets mains, tests and defaults be.
func TestBannedUsesNoticesViolations(t *testing.T) {
	const getenv = `import "os"; var x = os.Getenv("X")`
	for name, tt := range map[string]struct{ file, code, want string }{
		"environment in a library":    {"writers/x.go", getenv, "os.Getenv"},
		"environment in internal":     {"internal/stack/x.go", getenv, "os.Getenv"},
		"environment in a main":       {"writers/lambda/http/main.go", getenv, ""},
		"environment in the command":  {"cmd/toolledger/x.go", getenv, ""},
		"environment in a test":       {"writers/x_test.go", getenv, ""},
		"under another name":          {"writers/x.go", `import system "os"; var x = system.Getenv("X")`, "os.Getenv"},
		"the SDK's environment":       {"streams/x.go", `import "github.com/aws/aws-sdk-go-v2/config"; var x, _ = config.LoadDefaultConfig(nil)`, "LoadDefaultConfig"},
		"the clock":                   {"sweeper/x.go", `import "time"; var x = time.Now()`, "time.Now"},
		"the clock as a default":      {"sweeper/x.go", `import "time"; var now = time.Now`, ""},
		"print":                       {"streams/x.go", `import "fmt"; func f() { fmt.Println() }`, "fmt.Println"},
		"something of that name else": {"streams/x.go", `import "x/os"; var x = os.Getenv("X")`, ""},
	} {
		t.Run(name, func(t *testing.T) {
			expect(t, bannedUses([]source{parse(t, tt.file, "package p\n"+tt.code)}), tt.want)
		})
	}
}

func expect(t *testing.T, got []string, want string) {
	t.Helper()
	switch {
	case want == "" && len(got) > 0:
		t.Errorf("reported %q, want nothing", got)
	case want != "" && (len(got) != 1 || !strings.Contains(got[0], want)):
		t.Errorf("reported %q, want one line with %q", got, want)
	}
}

func parse(t *testing.T, file, code string) source {
	t.Helper()
	syntax, err := parser.ParseFile(token.NewFileSet(), file, code, parser.SkipObjectResolution)
	if err != nil {
		t.Fatal(err)
	}
	return source{file, syntax}
}

// moduleSources parses every Go file of the module, whatever platform it is for.
func moduleSources(t *testing.T) []source {
	t.Helper()
	root := os.DirFS("..")
	var all []source
	err := fs.WalkDir(root, ".", func(file string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.IsDir() {
			if base := d.Name(); file != "." && (strings.HasPrefix(base, ".") || base == "testdata" || base == "node_modules") {
				return fs.SkipDir
			}
			return nil
		}
		if filepath.Ext(file) != ".go" {
			return nil
		}
		code, err := fs.ReadFile(root, file)
		if err != nil {
			return err
		}
		all = append(all, parse(t, file, string(code)))
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if len(all) < 20 {
		t.Fatalf("only %d Go files found: this test looks in the wrong place", len(all))
	}
	return all
}

func orderViolations(all []source) []string {
	var out []string
	for _, s := range all {
		found := slices.IndexFunc(order, func(r rule) bool { return fits(r.pkg, s.pkg()) })
		if found < 0 {
			out = append(out, fmt.Sprintf("%s: %s: no rule says what it may import; add one to order", s.file, s.pkg()))
			continue
		}
		for _, to := range slices.Sorted(maps.Values(s.imports())) {
			ours, isOurs := strings.CutPrefix(to, module+"/")
			switch {
			case !isOurs:
				if slices.Contains(standardOnly, s.pkg()) && !s.test() && strings.Contains(strings.Split(to, "/")[0], ".") {
					out = append(out, fmt.Sprintf("%s: %s must import the standard library only, not %s", s.file, s.pkg(), to))
				}
			case ours == s.pkg(): // an external test of the package itself
			case s.test() && !fits("cmd/...", ours): // tests stand on top of everything but the command
			case !slices.ContainsFunc(order[found].may, func(m string) bool { return fits(m, ours) }):
				out = append(out, fmt.Sprintf("%s: %s must not import %s", s.file, s.pkg(), ours))
			}
		}
	}
	return out
}

// fits reports whether pkg is meant by pattern.
func fits(pattern, pkg string) bool {
	if pattern == library {
		return strings.HasPrefix(pkg, "internal/") && !slices.Contains(noLibrary, pkg)
	}
	if base, below := strings.CutSuffix(pattern, "/..."); below {
		return pkg == base || strings.HasPrefix(pkg, base+"/")
	}
	return pkg == pattern
}

func bannedUses(all []source) []string {
	var out []string
	for _, s := range all {
		if s.test() || slices.ContainsFunc(mains, func(m string) bool { return fits(m, s.pkg()) }) {
			continue
		}
		imports := s.imports()
		ast.Inspect(s.syntax, func(n ast.Node) bool {
			call, ok := n.(*ast.CallExpr)
			if !ok {
				return true
			}
			selector, ok := call.Fun.(*ast.SelectorExpr)
			if !ok {
				return true
			}
			name, ok := selector.X.(*ast.Ident)
			if !ok {
				return true
			}
			for _, b := range banned {
				if imports[name.Name] == b.path && selector.Sel.Name == b.name {
					out = append(out, fmt.Sprintf("%s: %s.%s is for mains: %s", s.file, path.Base(b.path), b.name, b.instead))
				}
			}
			return true
		})
	}
	return out
}
