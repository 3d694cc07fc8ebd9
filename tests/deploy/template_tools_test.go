package deploy_test

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"testing"
)

// root is the module's folder, seen from this package.
const root = "../.."

// finding is one thing that a rung of the ladder has against a template.
type finding struct {
	Rule    string `json:"rule"`
	Message string `json:"message"`
	Path    string `json:"path"`
}

func (f finding) String() string {
	if f.Path == "" {
		return f.Rule + ": " + f.Message
	}
	return f.Rule + " " + f.Path + ": " + f.Message
}

// question is a line that check.py reads.
type question struct {
	Op       string            `json:"op"`
	Template string            `json:"template"`
	Params   map[string]string `json:"params,omitempty"`
}

// answer is the line that it writes back.
type answer struct {
	Template json.RawMessage `json:"template"`
	Findings []finding       `json:"findings"`
}

// checker is a running check.py.
type checker struct {
	in  io.WriteCloser
	out *bufio.Reader
	err bytes.Buffer
}

// checkers are at most two, since that is how many cores there are to count on. They end with the test, which holds the
// other end of their input.
var checkers = struct {
	free  chan *checker
	slots chan struct{}
}{make(chan *checker, 2), make(chan struct{}, 2)}

// python is the interpreter of the tools' environment. Without it the test is skipped, but not where everything has to run.
func python(t *testing.T, environment string) string {
	t.Helper()
	path, err := filepath.Abs(filepath.Join(root, ".local/python", environment, "bin/python"))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(path); err != nil {
		if os.Getenv("CI") != "" {
			t.Fatal("the tools are missing: make setup-deploy")
		}
		t.Skip("the tools are missing: make setup-deploy")
	}
	return path
}

func startChecker(t *testing.T, interpreter string) *checker {
	t.Helper()
	c := &checker{}
	cmd := exec.Command(interpreter, "check.py")
	cmd.Stderr = &c.err
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if c.in, err = cmd.StdinPipe(); err != nil {
		t.Fatal(err)
	}
	c.out = bufio.NewReader(out)
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	return c
}

func (c *checker) ask(q question) (answer, error) {
	line, err := json.Marshal(q)
	if err != nil {
		return answer{}, err
	}
	if _, err := c.in.Write(append(line, '\n')); err != nil {
		return answer{}, fmt.Errorf("check.py: %w", err)
	}
	line, err = c.out.ReadBytes('\n')
	if err != nil {
		return answer{}, fmt.Errorf("check.py: %w", err)
	}
	var a answer
	return a, json.Unmarshal(line, &a)
}

// ask hands a question to whichever checker is free.
func ask(t *testing.T, q question) answer {
	t.Helper()
	interpreter := python(t, "sam")
	var c *checker
	select {
	case c = <-checkers.free:
	default:
		select {
		case c = <-checkers.free:
		case checkers.slots <- struct{}{}:
			c = startChecker(t, interpreter)
		}
	}
	a, err := c.ask(q)
	if err != nil {
		t.Fatalf("%v\n%s", err, c.err.String())
	}
	checkers.free <- c
	return a
}

// source is template.yaml, parsed once.
var source = sync.OnceValues(func() (string, error) {
	text, err := os.ReadFile(filepath.Join(root, "template.yaml"))
	return string(text), err
})

func templateText(t *testing.T) string {
	t.Helper()
	text, err := source()
	if err != nil {
		t.Fatal(err)
	}
	return text
}

var parsing struct {
	sync.Mutex
	answer answer
}

// parsed is template.yaml as JSON, a new copy for each caller.
func parsed(t *testing.T) object {
	t.Helper()
	parsing.Lock()
	defer parsing.Unlock()
	if parsing.answer.Template == nil {
		parsing.answer = ask(t, question{Op: "parse", Template: templateText(t)})
	}
	var o object
	if err := json.Unmarshal(parsing.answer.Template, &o); err != nil {
		t.Fatal(err, parsing.answer.Findings)
	}
	return o
}

// transform makes of a SAM template what CloudFormation makes of it.
func transform(t *testing.T, template object, params map[string]string) (object, []finding) {
	t.Helper()
	a := ask(t, question{Op: "transform", Template: text(t, template), Params: params})
	if len(a.Findings) > 0 {
		return nil, a.Findings
	}
	var o object
	if err := json.Unmarshal(a.Template, &o); err != nil {
		t.Fatal(err)
	}
	return o, nil
}

func text(t *testing.T, v any) string {
	t.Helper()
	b, err := json.MarshalIndent(v, "", " ")
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}
