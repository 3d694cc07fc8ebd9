package streams

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// promises says which tests show what is promised of the stream. Names are "folder: Test", folders below the module's root.
var promises = []struct {
	promise string
	shownBy []string
}{
	{
		"Derive is total and pure: any bytes, missing images, unknown tags, wrong types, half and foreign items",
		[]string{"streams: FuzzDecode", "streams: FuzzDerive", "streams: TestDecodeBadRecordKeepsNumberAndKeys"},
	},
	{
		"each lawful transition gives its events, and every other change is tampering",
		[]string{"streams: TestDeriveLawfulTransitions", "streams: TestDecodeEveryTransition", "tests: TestEventsEqualTransitions", "tests: TestTamperingIsSeen"},
	},
	{
		"1,000 histories: any interleaving, batching, redelivery and point of failure give the same set of events; totals equal it",
		[]string{"streams: TestOrderFree"},
	},
	{
		"PutEvents that fails, throttles, answers in part or drops the answer at each position of the first, a middle and the last " +
			"ten of 1,000: nothing lost, ids stable, nothing counted twice",
		[]string{"streams: TestHC46PartialFailure", "streams: TestPublishSurvives"},
	},
	{
		"the same with PutMetricData",
		[]string{"streams: TestPutMetricDataPartialFailure", "metrics: TestCloudWatchNeverTwice", "metrics: TestCloudWatchOverHTTP"},
	},
	{
		"every event that a test meets fits its published schema, which is valid and has an example",
		[]string{
			"streams/events/schemas: TestEveryTypeHasSchemas", "streams/events/schemas: TestExamplesFit", "streams/events/schemas: TestOpenAPIForTheRegistry",
			"streams/events/schemas: TestSchemasAreExact", "streams/events/schemas: TestCheckSeesWhatDoesNotFit", "streams: TestEventsOfForgedRowsFit",
			"tests: TestStoriesFitTheSchemas",
		},
	},
	{"a batch of 10,000 records takes less than 64 MB", []string{"streams: TestMemoryOfLargestBatch"}},
	{
		"the poller: parents before children, splits and merges, leases, checkpoints after publish, gaps that are told, trouble, idleness",
		[]string{
			"streams: TestPollerTopologies", "streams: TestTwoPollers", "streams: TestLeaseTakeover", "streams: TestPollerCheckpointAfterPublish",
			"streams: TestPollerTrimmed", "streams: TestPollerTrouble", "streams: TestPollerIdles", "tests: TestPollerFollowsLive",
		},
	},
	{"case HC46", []string{"streams: TestHC46PartialFailure", "streams: TestHC46RedeliveryAfterSuccess"}},
	{"case HC47", []string{"streams: TestHC47Observations", "streams: TestHC47Redelivery"}},
	{"case HC49", []string{"streams: TestHC49Identifiers"}},
	{"case HC50", []string{"streams: TestHC50PoisonRecord", "streams: TestHC50NowhereToKeep"}},
	{"case HC53", []string{"streams: TestHC53RemovalByTTL"}},
	{"case HC54", []string{"streams: TestHC54ExpiredIterator"}},
	{"case HC56", []string{"streams: TestHC56SplitWhileReading"}},
	{"case HC58", []string{"streams: TestHC58OnlyFailedEntriesAgain", "streams: TestHC58StillFailing"}},
	{"case HC60", []string{"streams: TestHC60EmptyBus"}},
	{"case HC61", []string{"streams: TestHC61Tens", "streams: TestHC61Bytes"}},
	{"case HC63", []string{"streams: TestHC63MissingTime", "metrics: TestHC63Times"}},
	{"case HC67", []string{"metrics: TestHC67EMFLimits"}},
	{"cases HC68 and HC69", []string{"metrics: TestHC68HC69ExactDimensionSets"}},
}

// Promise: the list above is true: each of its tests exists, and a case is shown by tests of its name.
func TestPromisesHaveTests(t *testing.T) {
	tests := map[string][]string{} // by folder
	for _, p := range promises {
		for _, name := range p.shownBy {
			folder, test, _ := strings.Cut(name, ": ")
			if tests[folder] == nil {
				tests[folder] = testsIn(t, filepath.Join("..", folder))
			}
			if !slices.Contains(tests[folder], test) {
				t.Errorf("%s: there is no %s in %s", p.promise, test, folder)
			}
			if id, is := strings.CutPrefix(p.promise, "case "); is && !strings.Contains(test, id) {
				t.Errorf("%s is not the name of a test of %s", test, id)
			}
		}
	}
}

func testsIn(t *testing.T, folder string) (names []string) {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(folder, "*_test.go"))
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range files {
		f, err := parser.ParseFile(token.NewFileSet(), file, nil, parser.SkipObjectResolution)
		if err != nil {
			t.Fatal(fmt.Errorf("%s: %w", file, err))
		}
		for _, d := range f.Decls {
			if fn, ok := d.(*ast.FuncDecl); ok && fn.Recv == nil {
				names = append(names, fn.Name.Name)
			}
		}
	}
	return names
}
