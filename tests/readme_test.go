package tests_test

import (
	"context"
	"errors"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"go/types"
	"io/fs"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"
)

// The README's code is held to this:
//
//   - Every ```go block compiles: a whole file (it begins with a package clause or an import), declarations, or the
//     statements of a function that has ctx, ledger, tenant and session. The packages of readmePackages need no import.
//   - Every ```sh block is a session: its lines that begin with "$ " run in one shell in the project's root, with
//     toolledger on the PATH; a line that ends in a backslash goes on with the next. The other lines show output.
//   - A block whose first line is a comment "not run: why", and a command followed by "# not run: why", are left out.

const (
	readme      = "../README.md"
	notRun      = "not run:"
	sessionTime = 2 * time.Minute
)

// readmePackages is what snippets may use without an import, by name.
var readmePackages = []string{
	"context", "encoding/json", "errors", "fmt", "log", "log/slog", "net/http", "time",
	"github.com/aws/aws-lambda-go/lambda", "github.com/aws/aws-sdk-go-v2/config", "github.com/aws/aws-sdk-go-v2/service/dynamodb",
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types",
	"toolledger/writers", "toolledger/writers/api", "toolledger/writers/writerstest", "toolledger/streams",
	"toolledger/streams/events", "toolledger/sweeper", "toolledger/metrics",
}

// block is one fenced block of a Markdown file.
type block struct {
	lang, text string
	line       int // of its first line of text
}

// blocks returns the fenced blocks of a Markdown text.
func blocks(text string) []block {
	var out []block
	var open *block
	n := 0
	for line := range strings.Lines(text) {
		n++
		fence, isFence := strings.CutPrefix(strings.TrimSpace(line), "```")
		switch {
		case isFence && open == nil:
			open = &block{lang: strings.TrimSpace(fence), line: n + 1}
		case isFence:
			out = append(out, *open)
			open = nil
		case open != nil:
			open.text += line
		}
	}
	return out
}

// leftOut tells whether the block says that it is not run, and why.
func (b block) leftOut() bool {
	first, _, _ := strings.Cut(b.text, "\n")
	return strings.HasPrefix(strings.TrimLeft(first, "#/ "), notRun)
}

// script is the commands of a session, in order.
func (b block) script() string {
	var out strings.Builder
	more := false
	for line := range strings.Lines(b.text) {
		command, isCommand := strings.CutPrefix(strings.TrimSpace(line), "$ ")
		if !isCommand && !more {
			continue
		}
		if strings.Contains(command, "# "+notRun) {
			more = false
			continue
		}
		out.WriteString(command + "\n")
		more = strings.HasSuffix(command, `\`)
	}
	return out.String()
}

func readmeBlocks(t *testing.T, langs ...string) []block {
	t.Helper()
	text, err := os.ReadFile(readme)
	if errors.Is(err, fs.ErrNotExist) {
		t.Skip("there is no README.md yet")
	}
	if err != nil {
		t.Fatal(err)
	}
	var out []block
	for _, b := range blocks(string(text)) {
		if slices.Contains(langs, b.lang) && !b.leftOut() {
			out = append(out, b)
		}
	}
	return out
}

// TestReadmeCompiles: whoever copies code from the README gets code that compiles.
func TestReadmeCompiles(t *testing.T) {
	for _, b := range readmeBlocks(t, "go") {
		t.Run(fmt.Sprintf("line %d", b.line), func(t *testing.T) {
			if errs := compile(t, b.text); len(errs) > 0 {
				t.Errorf("README.md line %d: %v", b.line, errs)
			}
		})
	}
}

// compile returns the faults of a block. Names that a snippet declares and does not use are none.
func compile(t *testing.T, text string) []error {
	t.Helper()
	set := token.NewFileSet()
	file, err := parser.ParseFile(set, "readme.go", text, 0)
	snippet := err != nil
	if snippet {
		if file, err = parser.ParseFile(set, "readme.go", asFile(text), 0); err != nil {
			return []error{err}
		}
	}
	var imports []string
	for _, spec := range file.Imports {
		name, err := strconv.Unquote(spec.Path.Value)
		if err != nil {
			return []error{err}
		}
		imports = append(imports, name)
	}
	errs := checkTypes(t, set, file, imports...)
	return slices.DeleteFunc(errs, func(err error) bool {
		e, ok := errors.AsType[types.Error](err)
		return snippet && ok && e.Soft
	})
}

// asFile makes a file of a snippet: declarations where it is that, else the statements of a function.
func asFile(text string) string {
	if strings.HasPrefix(strings.TrimSpace(text), "import ") {
		return "package readme\n" + text
	}
	body := text
	if _, err := parser.ParseFile(token.NewFileSet(), "", "package readme\n"+text, 0); err != nil {
		body = "func _(ctx context.Context, ledger *writers.Ledger, tenant writers.Tenant, session writers.Session) error {\n" +
			text + "\nreturn nil\n}\n"
	}
	var file strings.Builder
	file.WriteString("package readme\n")
	for _, pkg := range readmePackages {
		if usesPackage(body, path.Base(pkg)) {
			fmt.Fprintf(&file, "import %q\n", pkg)
		}
	}
	return file.String() + body
}

// usesPackage tells whether text has a selector on a name that it does not declare itself.
func usesPackage(text, name string) bool {
	file, err := parser.ParseFile(token.NewFileSet(), "", "package readme\n"+text, 0)
	if err != nil {
		return false
	}
	found := false
	ast.Inspect(file, func(n ast.Node) bool {
		if sel, ok := n.(*ast.SelectorExpr); ok {
			id, ok := sel.X.(*ast.Ident)
			found = found || ok && id.Name == name && id.Obj == nil
		}
		return true
	})
	return found
}

// TestReadmeRuns: whoever types what the README shows sees it work.
func TestReadmeRuns(t *testing.T) {
	sessions := readmeBlocks(t, "sh", "console", "shell", "bash")
	bin := t.TempDir()
	var built bool
	for _, b := range sessions {
		script := b.script()
		if script == "" {
			continue
		}
		if !built {
			run(t, bin, "go build -o "+filepath.Join(bin, "toolledger")+" ./cmd/toolledger")
			built = true
		}
		t.Run(fmt.Sprintf("line %d", b.line), func(t *testing.T) { run(t, bin, script) })
	}
}

// run runs a script in the project's root and fails the test unless every command of it succeeds.
func run(t *testing.T, bin, script string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), sessionTime)
	defer cancel()
	cmd := exec.CommandContext(ctx, "sh", "-e", "-c", script)
	cmd.Dir = ".."
	cmd.Env = append(os.Environ(), "PATH="+bin+string(os.PathListSeparator)+os.Getenv("PATH"))
	cmd.WaitDelay = 5 * time.Second
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Errorf("%v\n%s\n%s", err, script, out)
	}
}

// TestReadmeRules: the convention itself works, or the tests above would pass by looking at nothing.
func TestReadmeRules(t *testing.T) {
	got := blocks("a\n```go\nx := 1\n```\nb\n```sh\n$ echo a \\\n    b\na b\n$ false # not run: an example\n$ true\n```\n```sh\n# not run: why\n$ false\n```\n")
	if len(got) != 3 || got[0].lang != "go" || got[0].line != 3 || got[1].leftOut() || !got[2].leftOut() {
		t.Fatalf("%+v", got)
	}
	if script := got[1].script(); script != "echo a \\\nb\ntrue\n" {
		t.Fatalf("%q", script)
	}
	for text, ok := range map[string]bool{
		"package main\n\nimport \"fmt\"\n\nfunc main() { fmt.Println() }\n":                                     true,
		"package main\n\nfunc main() { x := 1 }\n":                                                              false,
		"var tool = &writers.Tool[struct{}, int]{Name: \"t\"}\n":                                                true,
		"got, err := session.Commit(ctx, writers.Call{}, 1)\n":                                                  true,
		"hold, done, err := session.Reserve(ctx, writers.Call{Lease: time.Minute})\n":                           true,
		"session.Finalize(ctx)\n":                                                                               false,
		"got := session.Commit(ctx, writers.Call{}, 1)\n":                                                       false,
		"func f(ctx context.Context, t *writers.Tool[int, int]) { h, _ := api.NewToolset(t); h.Definitions() }": true,
		"%%": false,
	} {
		if errs := compile(t, text); (len(errs) == 0) != ok {
			t.Errorf("%q: %v", text, errs)
		}
	}
}
