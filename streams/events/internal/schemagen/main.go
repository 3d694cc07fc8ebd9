// Command schemagen writes the schemas of all events: a JSON Schema of the detail for subscribers, and an OpenAPI 3.0
// document of the whole event for EventBridge's schema registry. Names, types and examples come from the Go types,
// descriptions from their comments, and what Go cannot say from the tables of this command.
//
//	schemagen -types DIR -out DIR
package main

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"toolledger/streams/events"
)

func main() {
	types := flag.String("types", "", "directory of the package of the event types")
	out := flag.String("out", "", "directory to write to; JSON files of types that are gone are removed")
	flag.Parse()
	if err := run(*types, *out); err != nil {
		fmt.Fprintf(os.Stderr, "schemagen: %v\n", err)
		os.Exit(1)
	}
}

func run(types, out string) error {
	said, err := readComments(types)
	if err != nil {
		return err
	}
	g := &generator{said, map[string]bool{}}
	var written []string
	for _, example := range events.All() {
		names, err := g.write(out, example)
		if err != nil {
			return err
		}
		written = append(written, names...)
	}
	if unused := g.unused(); len(unused) > 0 {
		return fmt.Errorf("rules that fit no field: %s", strings.Join(unused, ", "))
	}
	return removeOthers(out, written)
}

// write writes the documents of one event and returns their file names.
func (g *generator) write(out string, example events.Event) ([]string, error) {
	s, err := g.read(example)
	if err != nil {
		return nil, err
	}
	var names []string
	for _, doc := range []struct {
		suffix string
		build  func() (object, error)
	}{{".schema.json", s.jsonSchema}, {".openapi.json", s.openAPI}} {
		v, err := doc.build()
		if err != nil {
			return nil, err
		}
		b, err := document(v)
		if err != nil {
			return nil, err
		}
		names = append(names, s.name+doc.suffix)
		if err := os.WriteFile(filepath.Join(out, s.name+doc.suffix), b, 0o644); err != nil { //nolint:gosec // a source file
			return nil, err
		}
	}
	return names, nil
}

// removeOthers removes what an earlier run wrote for types that are gone.
func removeOthers(out string, written []string) error {
	files, err := filepath.Glob(filepath.Join(out, "*.json"))
	if err != nil {
		return err
	}
	for _, file := range files {
		if !slices.Contains(written, filepath.Base(file)) {
			if err := os.Remove(file); err != nil {
				return err
			}
		}
	}
	return nil
}
