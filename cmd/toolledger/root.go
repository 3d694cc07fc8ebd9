package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"toolledger/internal/progress"
)

// app is what every command shares.
type app struct {
	stdin          io.Reader
	stdout, stderr io.Writer
	now            func() time.Time

	json     bool   // exactly one JSON object on stdout, everything else on stderr
	logLevel string // what stderr shows of the log
	log      *slog.Logger
}

func newApp(stdin io.Reader, stdout, stderr io.Writer) *app {
	return &app{stdin: stdin, stdout: stdout, stderr: stderr, now: time.Now, log: slog.New(slog.DiscardHandler)}
}

// commands lists all commands but help, in the order of the help. Each stands in a file of its own.
func commands(a *app) []*cobra.Command {
	return []*cobra.Command{
		newDemoCommand(a),
		newDevCommand(a),
		newReplayCommand(a),
		newPendingCommand(a),
		newShowCommand(a),
		newQuotaCommand(a),
		newTailCommand(a),
		newAuditCommand(a),
		newResolveCommand(a),
		newSweepCommand(a),
		newPlanCommand(a),
		newGrantCommand(a),
		newSuspendCommand(a),
		newResumeCommand(a),
		newRebuildCommand(a),
		newRedriveCommand(a),
		newEraseCommand(a),
		newInitCommand(a),
		newDashboardCommand(a),
		newVersionCommand(a),
	}
}

// The groups of the help.
const (
	groupTry    = "try"
	groupLook   = "look"
	groupMend   = "mend"
	groupDeploy = "deploy"
)

func newRootCommand(a *app) *cobra.Command {
	cobra.EnableCommandSorting = false // commands stands in the order of a first visit
	root := &cobra.Command{
		Use:   "toolledger",
		Short: "Exactly-once effect for the tool calls of AI agents, on DynamoDB",
		Long: `toolledger gives every mutating tool call of an agent exactly-once effect, on DynamoDB.
Begin with: toolledger demo

Exit codes: 0 well, 1 a promise is broken or a race was lost, 2 bad input, 130 interrupted.`,
		SilenceUsage:               true,
		SilenceErrors:              true,
		SuggestionsMinimumDistance: 2,
		CompletionOptions:          cobra.CompletionOptions{HiddenDefaultCmd: true},
		PersistentPreRunE:          func(*cobra.Command, []string) error { return a.prepare() },
		Args:                       noCommand,
		RunE:                       func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	root.AddGroup(
		&cobra.Group{ID: groupTry, Title: "Try, on a local stack unless told otherwise:"},
		&cobra.Group{ID: groupLook, Title: "Look, where you say:"},
		&cobra.Group{ID: groupMend, Title: "Mend, where you say:"},
		&cobra.Group{ID: groupDeploy, Title: "Deploy:"},
	)
	root.PersistentFlags().BoolVar(&a.json, "json", false, "print exactly one JSON object on stdout, everything else on stderr")
	root.PersistentFlags().StringVar(&a.logLevel, "log-level", "warn", "show the log on stderr from `LEVEL` on: debug, info, warn, error")
	root.SetGlobalNormalizationFunc(func(_ *pflag.FlagSet, name string) pflag.NormalizedName {
		if name == "data" { // what try commands keep is what look commands read
			name = "local"
		}
		return pflag.NormalizedName(name)
	})
	root.SetFlagErrorFunc(func(cmd *cobra.Command, err error) error {
		if words := cmd.Flags().Args(); !cmd.HasParent() && len(words) > 0 { // a misspelt command's flags are not what is wrong
			return noCommand(cmd, words)
		}
		return badInput("%s (see %s --help)", flagText(err), cmd.CommandPath())
	})
	root.SetIn(a.stdin)
	root.SetOut(a.stdout)
	root.SetErr(a.stderr)
	root.AddCommand(commands(a)...)
	return root
}

// noArgs is cobra.NoArgs with a message for commands that have no subcommands.
func noArgs(cmd *cobra.Command, args []string) error {
	if len(args) > 0 {
		return badInput("unexpected argument %q (see %s --help)", args[0], cmd.CommandPath())
	}
	return nil
}

// oneFile wants the name of one file.
func oneFile(cmd *cobra.Command, args []string) error {
	if len(args) != 1 {
		return badInput("want FILE, got %d arguments (see %s --help)", len(args), cmd.CommandPath())
	}
	return nil
}

// noCommand refuses what is no command, with the nearest that is one.
func noCommand(cmd *cobra.Command, args []string) error {
	if len(args) == 0 {
		return nil
	}
	hint := "see toolledger --help"
	if near := cmd.SuggestionsFor(args[0]); len(near) > 0 {
		hint = "did you mean " + strings.Join(near, " or ") + "?"
	}
	return badInput("unknown command %q (%s)", args[0], hint)
}

// prepare checks the shared flags.
func (a *app) prepare() error {
	var level slog.Level
	if err := level.UnmarshalText([]byte(a.logLevel)); err != nil {
		return badInput("--log-level %q: want debug, info, warn or error", a.logLevel)
	}
	a.log = slog.New(slog.NewTextHandler(a.stderr, &slog.HandlerOptions{Level: level}))
	return nil
}

// execute carries out one command line, says on stderr in one line what went wrong, and returns the exit code.
func (a *app) execute(ctx context.Context, args []string) int {
	root := newRootCommand(a)
	root.SetArgs(args)
	cmd, err := root.ExecuteContextC(ctx)
	if err == nil {
		return 0
	}
	name := root.Name()
	if cmd != nil {
		name = strings.ReplaceAll(cmd.CommandPath(), " ", ": ")
	}
	code := exitCode(ctx, err)
	text := oneLine(err)
	if code == exitInterrupted {
		text = "interrupted"
	}
	if cmd != nil { // the ledger's operations are called as the commands are
		text = strings.TrimPrefix(text, cmd.Name()+": ")
	}
	_, _ = fmt.Fprintf(a.stderr, "%s: %s\n", name, text)
	return code
}

// print writes text for a person to stdout, or to stderr where stdout belongs to JSON.
func (a *app) print(format string, args ...any) {
	out := a.stdout
	if a.json {
		out = a.stderr
	}
	_, _ = fmt.Fprintf(out, format, args...)
}

// printJSON writes v as one line of JSON to stdout.
func (a *app) printJSON(v any) error {
	enc := json.NewEncoder(a.stdout)
	enc.SetEscapeHTML(false)
	return enc.Encode(v)
}

// progress shows a bar on stderr where a person watches; Done must be called on it.
func (a *app) progress(message string, total int64) *progress.Bar {
	return progress.Start(a.stderr, a.json, message, total)
}
