package tests_test

import (
	"fmt"
	"go/ast"
	"go/importer"
	"go/parser"
	"go/token"
	"go/types"
	"io"
	"os"
	"os/exec"
	"strings"
	"sync"
	"testing"
)

// misuseFrame is the program around a misuse: everything that a tool's author has at hand.
const misuseFrame = `package misuse

import (
	"context"

	"toolledger/writers"
)

type Args struct{ Tenant, Key string }

func use(ctx context.Context, l *writers.Ledger, s writers.Session, a Args, t *writers.Tool[Args, int], c writers.Call) error {
	%s
	return nil
}
`

// TestMisuseDoesNotCompile: the seven mistakes that would break a promise are mistakes of type. Beside each stands the
// same thing done well, which compiles: so the refusal is for the mistake and for nothing else.
func TestMisuseDoesNotCompile(t *testing.T) {
	for _, tc := range []struct{ name, wrong, says, right string }{
		{
			"a tenant from a model's arguments", `l.Tenant(a.Tenant)`,
			"cannot use a.Tenant (variable of type string) as writers.TenantID value",
			`l.Tenant(writers.TenantID("from the authorizer"))`,
		},
		{
			"a key that is a plain string", `t.Do(ctx, s, a.Key, a)`,
			"cannot use a.Key (variable of type string) as writers.Key value",
			`t.Do(ctx, s, writers.SessionKey(a.Key), a)`,
		},
		{
			"the replay forgotten", "hold, done, err := s.Reserve(ctx, c)\nif err != nil { return err }\nhold.Extend(ctx, 0)",
			"declared and not used: done",
			"hold, done, err := s.Reserve(ctx, c)\nif err != nil || done != nil { return err }\nhold.Extend(ctx, 0)",
		},
		{
			"a result of another type", `t.Commit(ctx, s, writers.SessionKey("k"), a, "x")`,
			`cannot use "x" (untyped string constant) as int value`,
			`t.Commit(ctx, s, writers.SessionKey("k"), a, 1)`,
		},
		{
			"arguments and key swapped", `t.Do(ctx, s, a, writers.SessionKey("k"))`,
			"cannot use a (variable of struct type Args) as writers.Key value",
			`t.Do(ctx, s, writers.SessionKey("k"), a)`,
		},
		{
			"a session made by hand", `x := writers.Session{nil, "s1"}; _ = x`,
			"implicit assignment to unexported field",
			`x := l.Tenant("acme").Session("s1"); _ = x`,
		},
		{
			"a finalize without a reservation", `s.Finalize(ctx, nil, 1)`,
			"s.Finalize undefined (type writers.Session has no field or method Finalize)",
			"hold, done, err := s.Reserve(ctx, c)\nif err != nil || done != nil { return err }\nhold.Finalize(ctx, nil, 1)",
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			if errs := typeErrors(t, tc.right); len(errs) > 0 {
				t.Errorf("the right way does not compile: %v", errs)
			}
			errs := typeErrors(t, tc.wrong)
			if len(errs) == 0 {
				t.Fatal("the misuse compiles")
			}
			if !strings.Contains(errs[0].Error(), tc.says) {
				t.Errorf("%v, want %q", errs, tc.says)
			}
		})
	}
}

// typeErrors type-checks a use of the library as the compiler does and returns what it objects to.
func typeErrors(t *testing.T, use string) []error {
	t.Helper()
	set := token.NewFileSet()
	file, err := parser.ParseFile(set, "use.go", fmt.Sprintf(misuseFrame, use), 0)
	if err != nil {
		t.Fatal(err)
	}
	return checkTypes(t, set, file, "toolledger/writers")
}

// checkTypes type-checks one file against compiled packages: imports lists those of this module that it uses.
func checkTypes(t *testing.T, set *token.FileSet, file *ast.File, imports ...string) []error {
	t.Helper()
	var errs []error
	cfg := types.Config{
		Importer: importer.ForCompiler(set, "gc", exportsOf(t, imports).open),
		Error:    func(err error) { errs = append(errs, err) },
	}
	_, _ = cfg.Check(file.Name.Name, set, []*ast.File{file}, nil) // what it objects to is in errs
	return errs
}

// exports maps import paths to the files of their compiled declarations.
type exports map[string]string

func (e exports) open(path string) (io.ReadCloser, error) {
	if e[path] == "" {
		return nil, fmt.Errorf("no compiled package %s", path)
	}
	return os.Open(e[path])
}

var compiled struct {
	sync.Mutex
	by map[string]exports
}

// exportsOf compiles packages, with all that they import, once per test run.
func exportsOf(t *testing.T, packages []string) exports {
	t.Helper()
	compiled.Lock()
	defer compiled.Unlock()
	name := strings.Join(packages, " ")
	if e := compiled.by[name]; e != nil {
		return e
	}
	args := append([]string{"list", "-export", "-deps", "-f", "{{.ImportPath}}\t{{.Export}}"}, packages...)
	cmd := exec.CommandContext(t.Context(), "go", args...)
	var stderr strings.Builder
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("go list: %v: %s", err, stderr.String())
	}
	e := exports{}
	for line := range strings.Lines(string(out)) {
		path, file, _ := strings.Cut(strings.TrimSpace(line), "\t")
		e[path] = file
	}
	if compiled.by == nil {
		compiled.by = map[string]exports{}
	}
	compiled.by[name] = e
	return e
}
