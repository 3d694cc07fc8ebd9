package functions_test

import (
	"fmt"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// What a function may cost. Times depend on the machine, so they are printed and decide nothing.
const (
	initGoalMillis  = 60
	memoryGoalMB    = 40
	memoryLimitMB   = 60
	measuredStarts  = 3
	measuredInvokes = 10
)

var initReport = regexp.MustCompile(`INIT REPORT\(durationMs: ([0-9.]+)\)`)

// Promise: functions start fast and stay small. The figures are printed with -v.
func TestStartAndMemory(t *testing.T) {
	needsProc(t)
	d, s := newDatabase(t), newServices(t)
	d.createTickets(t)
	d.createTable(t, "functions-view", "row")
	env := append(d.environ(), "AWS_ENDPOINT_URL="+s.url)
	for _, f := range []struct {
		name, pkg string
		env       []string
		event     string
	}{
		{"writer http", "writers/lambda", []string{"DOOR=http"}, "http-jwt.json"},
		{"writer direct", "writers/lambda", []string{"DOOR=direct"}, "direct.json"},
		{"writer admin", "writers/lambda", []string{"DOOR=admin", `ADMIN_ROLES=["123456789012/ops"]`}, "admin-plan.json"},
		{"stream", "streams/lambda", []string{"EVENT_BUS=audit", "FAILURE_BUCKET=failures"}, "stream.json"},
		{"sweeper", "sweeper/lambda", nil, "schedule.json"},
		{"subscriber", "examples/subscriber", []string{"VIEW_TABLE=functions-view"}, "event.json"},
		{"tickets", "examples/tickets", []string{"DOOR=bedrock", "TICKETS_TABLE=" + ticketsTable}, "bedrock-api.json"},
	} {
		var inits, sizes []float64
		for range measuredStarts {
			l := start(t, f.pkg, slices.Concat(env, f.env)...)
			event := golden(t, f.event)
			for range measuredInvokes {
				l.invoke(event)
			}
			m := initReport.FindStringSubmatch(l.log.String())
			if m == nil {
				t.Fatalf("%s: the emulator reports no init", f.name)
			}
			took, err := strconv.ParseFloat(m[1], 64)
			if err != nil {
				t.Fatal(err)
			}
			inits, sizes = append(inits, took), append(sizes, resident(t, l.child()))
			l.stop()
		}
		slices.Sort(inits)
		slices.Sort(sizes)
		took, size := inits[len(inits)/2], sizes[len(sizes)/2]
		t.Logf("%-14s init %5.1f ms (goal %d), %4.1f MB resident (goal %d)", f.name, took, initGoalMillis, size, memoryGoalMB)
		if size > memoryLimitMB {
			t.Errorf("%s: %.1f MB resident, want at most %d", f.name, size, memoryLimitMB)
		}
	}
}

// resident is the most memory that a process has held, in MB of 10^6 bytes.
func resident(t *testing.T, pid int) float64 {
	t.Helper()
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(text)) {
		if rest, ok := strings.CutPrefix(line, "VmHWM:"); ok {
			kb, err := strconv.ParseFloat(strings.Fields(rest)[0], 64)
			if err != nil {
				t.Fatal(err)
			}
			return kb * 1024 / 1e6
		}
	}
	t.Fatal("the kernel does not say how much memory a process has held")
	return 0
}
