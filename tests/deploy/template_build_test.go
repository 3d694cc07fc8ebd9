package deploy_test

import (
	"context"
	"debug/buildinfo"
	"debug/elf"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"
)

// largest is how big an executable may be: what Lambda has to fetch and map before it can start it.
const largest = 15 << 20

// sam is the command-line program of SAM on a copy of the repository, as somebody has it who has just cloned it.
type sam struct {
	dir string
	env []string
	py  string
}

func newSAM(t *testing.T) sam {
	t.Helper()
	s := sam{dir: t.TempDir(), py: python(t, "sam")}
	cloneInto(t, s.dir)
	s.env = append(os.Environ(), "SAM_CLI_TELEMETRY=0", "__SAM_CLI_APP_DIR="+filepath.Join(t.TempDir(), "sam"), "AWS_DEFAULT_REGION=eu-central-1",
		"AWS_ACCESS_KEY_ID=none", "AWS_SECRET_ACCESS_KEY=none", "AWS_CONFIG_FILE=/dev/null", "AWS_SHARED_CREDENTIALS_FILE=/dev/null", "GOFLAGS=")
	return s
}

// cloneInto copies what git has or would take.
func cloneInto(t *testing.T, dir string) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "git", "ls-files", "-z", "--cached", "--others", "--exclude-standard")
	cmd.Dir = root
	names, err := cmd.Output()
	if err != nil {
		t.Skipf("not a git checkout: %v", err)
	}
	for name := range strings.SplitSeq(strings.TrimRight(string(names), "\x00"), "\x00") {
		from, to := filepath.Join(root, name), filepath.Join(dir, name)
		info, err := os.Lstat(from)
		if errors.Is(err, fs.ErrNotExist) {
			continue // deleted, and not committed yet
		}
		if err != nil {
			t.Fatal(err)
		}
		if !info.Mode().IsRegular() {
			continue
		}
		content, err := os.ReadFile(from)
		if err != nil {
			t.Fatal(err)
		}
		if err := os.MkdirAll(filepath.Dir(to), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(to, content, info.Mode().Perm()); err != nil {
			t.Fatal(err)
		}
	}
}

func (s sam) run(t *testing.T, env []string, args ...string) (string, error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 8*time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, s.py, append([]string{"-m", "samcli"}, args...)...)
	cmd.Dir, cmd.Env = s.dir, append(slices.Clone(s.env), env...)
	cmd.WaitDelay = 10 * time.Second
	out, err := cmd.CombinedOutput()
	return string(out), err
}

// TestSAMValidates is the fourth rung's first half: SAM itself has nothing against the template.
func TestSAMValidates(t *testing.T) {
	t.Parallel()
	if out, err := newSAM(t).run(t, nil, "validate", "--lint"); err != nil || !strings.Contains(out, "is a valid SAM Template") {
		t.Errorf("sam validate --lint: %v\n%s", err, out)
	}
}

// TestSAMBuilds is the fourth rung: from a clean clone, sam build makes an executable for each function that Lambda can start,
// for both processors.
func TestSAMBuilds(t *testing.T) {
	t.Parallel()
	functions := []string{}
	for id, r := range child(parsed(t), "Resources") {
		if asObject(r)["Type"] == "AWS::Serverless::Function" {
			functions = append(functions, id)
		}
	}
	slices.Sort(functions)
	for _, arch := range []struct {
		name    string
		machine elf.Machine
		goarch  string
	}{{"arm64", elf.EM_AARCH64, "arm64"}, {"x86_64", elf.EM_X86_64, "amd64"}} {
		t.Run(arch.name, func(t *testing.T) {
			t.Parallel()
			s := newSAM(t) // of its own, since SAM keeps notes beside the template
			built := filepath.Join(t.TempDir(), "build")
			out, err := s.run(t, []string{"LAMBDA_ARCH=" + arch.name}, "build", "--build-dir", built, "--parameter-overrides", "Architecture="+arch.name)
			if err != nil {
				t.Fatalf("sam build: %v\n%s", err, out)
			}
			for _, id := range functions {
				artifact(filepath.Join(built, id), arch.machine, arch.goarch, t.Errorf)
			}
			builtTemplate(t, built, functions)
		})
	}
}

// artifact: what is deployed of a function is one static executable of the right kind, at the root of its archive.
func artifact(dir string, machine elf.Machine, goarch string, bad report) {
	id, name := filepath.Base(dir), filepath.Join(dir, "bootstrap")
	entries, err := os.ReadDir(dir)
	if err != nil || len(entries) != 1 || entries[0].Name() != "bootstrap" {
		bad("%s: want bootstrap alone at the root of the archive, got %v %v", id, entries, err)
		return
	}
	info, err := os.Stat(name)
	if err != nil {
		bad("%s: %v", id, err)
		return
	}
	if info.Mode()&0o111 == 0 || info.Size() > largest {
		bad("%s: %v bytes, mode %v", id, info.Size(), info.Mode())
	}
	f, err := elf.Open(name)
	if err != nil {
		bad("%s: %v", id, err)
		return
	}
	defer f.Close()
	if f.Machine != machine {
		bad("%s: built for %v", id, f.Machine)
	}
	for _, p := range f.Progs {
		if p.Type == elf.PT_INTERP || p.Type == elf.PT_DYNAMIC {
			bad("%s: not static", id)
		}
	}
	flags(id, name, goarch, bad)
}

// flags: built as the Makefile says, and not as somebody's environment does.
func flags(id, name, goarch string, bad report) {
	info, err := buildinfo.ReadFile(name)
	if err != nil {
		bad("%s: %v", id, err)
		return
	}
	settings := map[string]string{}
	for _, s := range info.Settings {
		settings[s.Key] = s.Value
	}
	want := map[string]string{"CGO_ENABLED": "0", "GOOS": "linux", "GOARCH": goarch, "-trimpath": "true", "-tags": "lambda.norpc"}
	for _, key := range sorted(want) {
		if settings[key] != want[key] {
			bad("%s: built with %s=%s, want %s", id, key, settings[key], want[key])
		}
	}
}

// TestSAMBuildFaults: the fourth rung notices what none before it can, since it is not in the template or not on this machine.
func TestSAMBuildFaults(t *testing.T) {
	t.Parallel()
	if !whole() {
		t.Skip("slow: TOOLLEDGER_MUTANTS=1 runs it")
	}
	for _, m := range []struct{ fault, file, old, replacement string }{
		{"code in a folder that is none", "template.yaml", "CodeUri: .\n", "CodeUri: nowhere\n"},
		{"executable under another name", "Makefile", `$(ARTIFACTS_DIR)/bootstrap`, `$(ARTIFACTS_DIR)/main`},
		{"another processor", "Makefile", "GOARCH=$(LAMBDA_ARCH:x86_64=amd64)", "GOARCH=arm64"},
		{"dynamic executable", "Makefile", "CGO_ENABLED=0 GOOS=linux", "CGO_ENABLED=1 GOOS=linux"},
		{"with what Lambda no longer calls", "Makefile", " -tags lambda.norpc", ""},
		{"target missing", "Makefile", "build-StreamFunction:", "build-Stream:"},
	} {
		t.Run(m.fault, func(t *testing.T) {
			t.Parallel()
			s := newSAM(t)
			name := filepath.Join(s.dir, m.file)
			content, err := os.ReadFile(name)
			if err != nil {
				t.Fatal(err)
			}
			if !strings.Contains(string(content), m.old) {
				t.Fatalf("the fault does not fit %s", m.file)
			}
			if err := os.WriteFile(name, []byte(strings.ReplaceAll(string(content), m.old, m.replacement)), 0o644); err != nil {
				t.Fatal(err)
			}
			built := filepath.Join(t.TempDir(), "build")
			out, err := s.run(t, []string{"LAMBDA_ARCH=x86_64"}, "build", "StreamFunction", "--build-dir", built, "--parameter-overrides", "Architecture=x86_64")
			var found []string
			if err == nil {
				artifact(filepath.Join(built, "StreamFunction"), elf.EM_X86_64, "amd64", func(format string, args ...any) {
					found = append(found, fmt.Sprintf(format, args...))
				})
			} else {
				found = append(found, out)
			}
			if len(found) == 0 {
				t.Error("rung 4 does not notice it")
				return
			}
			t.Logf("rung 4: %s", short(strings.TrimSpace(found[0])))
		})
	}
}

var yamlAlias = regexp.MustCompile(`(?m)^.*(?::|-) +[*&][A-Za-z]\w*$`)

// builtTemplate: what would be deployed names the folders that were built, and has no YAML alias, which CloudFormation does
// not read.
func builtTemplate(t *testing.T, dir string, functions []string) {
	t.Helper()
	content, err := os.ReadFile(filepath.Join(dir, "template.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	a := ask(t, question{Op: "parse", Template: string(content)})
	o := object{}
	if err := json.Unmarshal(a.Template, &o); err != nil {
		t.Fatal(err, a.Findings)
	}
	for _, id := range functions {
		if uri := dig(o, "Resources", id, "Properties", "CodeUri"); uri != id {
			t.Errorf("%s: CodeUri %v is not what was built", id, uri)
		}
	}
	if m := yamlAlias.Find(content); m != nil {
		t.Errorf("an alias: %s", m)
	}
}
