package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/jedib0t/go-pretty/v6/table"
	"github.com/spf13/cobra"

	"toolledger/internal/ops"
	"toolledger/internal/ops/picture"
	"toolledger/metrics"
)

func newDashboardCommand(a *app) *cobra.Command {
	var file string
	var set []string
	cmd := &cobra.Command{
		Use: "dashboard", GroupID: groupDeploy, Args: noArgs,
		Short: "Show the dashboard and the alarms: as a list, as JSON, or as a picture",
		Example: `  toolledger dashboard --png dashboard.png
  toolledger dashboard --json --stack toolledger-prod --region eu-west-1`,
		Long: `Lists what the deployed dashboard shows and which alarms there are.
--json prints the dashboard's body as CloudWatch takes it, with the names of a deployed --stack. Without one, names stay
references as in template.yaml, such as ${LedgerTable}, but for --region and what --set puts in.
--png FILE draws the same body from metrics of this machine: of an hour of a made-up story on a local stack, or of the
ledger that --local, --endpoint or --table name, read from its streams and changed in nothing.`,
	}
	w := addWhere(cmd)
	cmd.Flags().StringArrayVar(&set, "set", nil, "with --json: `NAME=VALUE` of a reference; may be repeated")
	cmd.Flags().StringVar(&file, "png", "", "draw it into `FILE`")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		if file == "" {
			return a.printDashboard(cmd.Context(), w, set)
		}
		if len(set) > 0 {
			return badInput("--set is for --json without --png")
		}
		return a.drawDashboard(cmd.Context(), w, file)
	}
	return cmd
}

func (a *app) printDashboard(ctx context.Context, w *where, set []string) error {
	if w.local != "" || w.endpoint != "" || w.table != "" || w.control != "" {
		return badInput("--local, --endpoint, --table and --control are for --png FILE")
	}
	if !a.json {
		if len(set) > 0 {
			return badInput("--set is for --json: the list has no names in it")
		}
		a.print("%s\n%s\n", dashboardTable(), alarmTable())
		return nil
	}
	body, err := a.dashboardBody(ctx, w, set)
	if err != nil {
		return err
	}
	return a.printJSON(json.RawMessage(body))
}

func dashboardTable() string {
	t := newTable()
	t.AppendHeader(table.Row{"widget", "shows"})
	for _, w := range ops.Dashboard().Widgets {
		var shows []string
		for _, e := range w.Properties.Metrics {
			if e.Search != nil {
				shows = append(shows, fmt.Sprintf("%s of the top %d tenants", e.Search.Name, e.Search.Top))
				continue
			}
			shows = append(shows, e.Metric.Name)
		}
		slices.Sort(shows)
		shows = slices.Compact(shows)
		if len(shows) > 0 {
			t.AppendRow(table.Row{w.Properties.Title, strings.Join(shows, ", ")})
		}
	}
	return t.Render()
}

func alarmTable() string {
	t := newTable()
	t.AppendHeader(table.Row{"alarm", "", "means"})
	for _, alarm := range ops.Alarms() {
		kind := "notice"
		if alarm.Page {
			kind = "page"
		}
		t.AppendRow(table.Row{alarm.Name, kind, alarm.Says})
	}
	return t.Render()
}

// drawDashboard collects metrics and writes the picture.
func (a *app) drawDashboard(ctx context.Context, w *where, file string) error {
	if dir := filepath.Dir(file); file == "" || strings.HasSuffix(file, string(filepath.Separator)) {
		return badInput("--png %q: want the name of a file", file)
	} else if info, err := os.Stat(dir); err != nil || !info.IsDir() {
		return badInput("--png %s: there is no folder %s", file, dir)
	}
	points, stackName, err := a.localPoints(ctx, w)
	if err != nil {
		return err
	}
	body := ops.Dashboard()
	for i := range body.Widgets { // titles and captions are all that a picture shows of names
		text := &body.Widgets[i].Properties.Markdown
		*text = strings.ReplaceAll(*text, "${AWS::StackName}", stackName)
	}
	png, err := picture.Draw(body, picture.Collect(points))
	if errors.Is(err, picture.ErrNothing) {
		return badInput("the streams hold nothing of the last day: there is nothing to draw")
	}
	if err != nil {
		return err
	}
	if err := os.WriteFile(file, png, 0o644); err != nil { //nolint:gosec // a picture for everybody
		if _, denied := errors.AsType[*fs.PathError](err); denied {
			return badInput("--png %w", err)
		}
		return err
	}
	if a.json {
		return a.printJSON(map[string]any{"command": "dashboard", "png": file, "bytes": len(png), "points": len(points)})
	}
	a.print("%s shows %d points of %d metrics\n", file, len(points), metricNames(points))
	return nil
}

func metricNames(points []metrics.Point) int {
	seen := map[string]bool{}
	for _, p := range points {
		seen[p.Name] = true
	}
	return len(seen)
}
