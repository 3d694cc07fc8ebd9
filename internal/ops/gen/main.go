// Command gen writes what package ops generates into the marked regions of a template.
//
// It is called with the template's file name.
package main

import (
	"errors"
	"fmt"
	"os"

	"toolledger/internal/ops"
	"toolledger/metrics"
)

func main() {
	if len(os.Args) != 2 {
		fmt.Fprintln(os.Stderr, "usage: gen TEMPLATE")
		os.Exit(2)
	}
	if err := write(os.Args[1]); err != nil {
		fmt.Fprintln(os.Stderr, "gen:", err)
		os.Exit(1)
	}
}

func write(file string) error {
	defined := metrics.Definitions()
	if err := errors.Join(ops.Dashboard().Check(defined), ops.CheckAlarms(ops.Alarms(), defined)); err != nil {
		return err
	}
	before, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	after, err := ops.Generate(string(before))
	if err != nil || after == string(before) {
		return err
	}
	return os.WriteFile(file, []byte(after), 0o644) //nolint:gosec // a document that everybody reads
}
