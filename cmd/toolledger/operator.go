package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"os/user"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/aws/arn"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/s3"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"toolledger/internal/progress"
	"toolledger/internal/schema"
	"toolledger/writers"
	"toolledger/writers/results"
)

// operator is what the command line of an operator's tool says beside its own arguments: where the ledger is, how it is
// run there, and, where the tool mends, who decides and why.
type operator struct {
	cmd     *cobra.Command
	where   *where
	skew    time.Duration
	keep    time.Duration
	results string
	yes     bool
	by, why string
}

// addOperator gives cmd the flags of an operator's tool that looks.
func addOperator(cmd *cobra.Command) *operator {
	o := &operator{cmd: cmd, where: addWhere(cmd)}
	f := cmd.Flags()
	f.DurationVar(&o.skew, "skew", 0, "how far apart clocks may be, as the writers have it (default 2m)")
	return o
}

// addMender gives cmd the flags of an operator's tool that mends.
func addMender(cmd *cobra.Command) *operator {
	o := addOperator(cmd)
	f := cmd.Flags()
	f.DurationVar(&o.keep, "keep", 0, "how long ended calls are remembered, as the writers have it (default 720h)")
	f.BoolVar(&o.yes, "yes", false, "do not ask")
	f.StringVar(&o.by, "by", "", "`WHO` decides; kept with what is written (default your login name)")
	f.StringVar(&o.why, "why", "", "`WHY`, up to 1 KB; kept with what is written")
	return o
}

// addResults gives cmd the flag that names where large results are.
func (o *operator) addResults() {
	o.cmd.Flags().StringVar(&o.results, "results", "", "large results are in `s3://BUCKET/PREFIX`, as the writers have it")
}

// place names a ledger to a person and to programs.
type place struct {
	Account  string `json:"account,omitempty"` // on AWS
	Region   string `json:"region"`
	Endpoint string `json:"endpoint,omitempty"`
	File     string `json:"file,omitempty"` // kept by the local stack
	Table    string `json:"table"`
	Control  string `json:"control_table"`
}

func (p place) String() string {
	switch {
	case p.File != "":
		return fmt.Sprintf("table %s in file %s", p.Table, p.File)
	case p.Endpoint != "":
		return fmt.Sprintf("table %s at %s", p.Table, p.Endpoint)
	}
	return fmt.Sprintf("table %s, account %s, Region %s", p.Table, p.Account, p.Region)
}

// placeOf asks DynamoDB whose table it is: the account stands in the table's ARN.
func placeOf(ctx context.Context, w *where, l *location) (place, error) {
	p := place{Region: l.region, Endpoint: l.endpoint, Table: l.table, Control: l.control}
	if w.local != "" {
		p.Endpoint, p.File = "", w.local
		return p, nil
	}
	out, err := l.client.DescribeTable(ctx, &dynamodb.DescribeTableInput{TableName: &l.table})
	if err != nil {
		return p, badInput("table %s at %s: %w", l.table, l, err)
	}
	if own, err := arn.Parse(aws.ToString(out.Table.TableArn)); err == nil && l.endpoint == "" {
		p.Account, p.Region = own.AccountID, own.Region
	}
	return p, nil
}

// bench is an opened ledger with the tools to work on it.
type bench struct {
	*location
	place  place
	ledger *writers.Ledger
}

// open opens the ledger that a command line names and says which it is before anything is done there.
func (a *app) open(ctx context.Context, o *operator) (*bench, error) {
	if err := o.check(); err != nil {
		return nil, err
	}
	l, err := a.lookLocation(ctx, o.where)
	if err != nil {
		return nil, err
	}
	b := &bench{location: l}
	if err := a.equip(ctx, o, b); err != nil {
		l.close()
		return nil, err
	}
	a.print("%s\n", b.place)
	return b, nil
}

func (a *app) equip(ctx context.Context, o *operator, b *bench) (err error) {
	if b.place, err = placeOf(ctx, o.where, b.location); err != nil {
		return err
	}
	cfg := writers.Config{Table: b.table, Control: b.control, Skew: o.skew, Keep: o.keep, Now: a.now, Logger: a.log}
	if o.results != "" {
		if cfg.Results, err = resultStore(o.results, b.config); err != nil {
			return err
		}
	}
	b.ledger, err = writers.New(signed{b.client, b.control, o.by, o.why}, cfg)
	if err != nil {
		return badInput("%w", err)
	}
	return nil
}

// check checks the shared flags and fills in who acts.
func (o *operator) check() error {
	if o.cmd.Flags().Lookup("by") == nil {
		return nil
	}
	if o.by == "" && !o.cmd.Flags().Changed("by") {
		o.by = loginName()
	}
	for _, f := range []struct {
		flag, text string
		limit      int
	}{{"--by", o.by, 256}, {"--why", o.why, 1024}} {
		if err := schema.CheckText(f.flag, f.text, f.limit); err != nil {
			return badInput("%w", err)
		}
	}
	if strings.TrimSpace(o.by) == "" {
		return badInput("--by: say who decides")
	}
	return nil
}

func loginName() string {
	if u, err := user.Current(); err == nil && u.Username != "" {
		return u.Username
	}
	return "unknown"
}

// resultStore opens the store that --results names.
func resultStore(text string, cfg aws.Config) (*results.S3, error) {
	rest, ok := strings.CutPrefix(text, "s3://")
	bucket, prefix, _ := strings.Cut(rest, "/")
	if !ok || bucket == "" {
		return nil, badInput("--results %q: want s3://BUCKET/PREFIX", text)
	}
	client := s3.NewFromConfig(cfg, func(o *s3.Options) {
		if own := os.Getenv("AWS_ENDPOINT_URL_S3"); own != "" {
			o.BaseEndpoint = aws.String(own)
		}
		o.UsePathStyle = o.BaseEndpoint != nil
	})
	store, err := results.NewS3(client, bucket, prefix)
	if err != nil {
		return nil, badInput("--results %q: %w", text, err)
	}
	return store, nil
}

// signed is a client that signs what is put into the control table, plans and grants, with who wrote it and why: in the
// same transaction, so that neither is there without the other.
type signed struct {
	writers.DynamoDB
	control string
	by, why string
}

func (s signed) TransactWriteItems(ctx context.Context, in *dynamodb.TransactWriteItemsInput, opts ...func(*dynamodb.Options)) (*dynamodb.TransactWriteItemsOutput, error) {
	for _, item := range in.TransactItems {
		if item.Put == nil || aws.ToString(item.Put.TableName) != s.control {
			continue
		}
		note := schema.Item{}
		if s.by != "" {
			note[schema.ABy] = schema.S(s.by)
		}
		if s.why != "" {
			note[schema.AWhy] = schema.S(s.why)
		}
		maps.Copy(item.Put.Item, note)
	}
	return s.DynamoDB.TransactWriteItems(ctx, in, opts...)
}

// confirm asks a person whether to go on. Where nobody can be asked, only --yes will do.
func (a *app) confirm(ctx context.Context, o *operator, question string) error {
	if o.yes {
		return nil
	}
	if !progress.Terminal(a.stdin) {
		return badInput("nobody can be asked here: give --yes to %s", question)
	}
	return a.ask(ctx, question)
}

// ask puts a question and takes y or yes for a yes.
func (a *app) ask(ctx context.Context, question string) error {
	_, _ = fmt.Fprintf(a.stderr, "%s? [y/N] ", strings.ToUpper(question[:1])+question[1:])
	said := make(chan string, 1)
	go func() { // ends with the answer, or with the program
		line, _ := bufio.NewReader(a.stdin).ReadString('\n')
		said <- line
	}()
	select {
	case line := <-said:
		switch strings.ToLower(strings.TrimSpace(line)) {
		case "y", "yes":
			return nil
		}
		return badInput("not confirmed: nothing was done")
	case <-ctx.Done():
		return ctx.Err()
	}
}

// refused turns an answer of the ledger into the error that ends the program: what somebody else did first, or what is not
// over yet, is a lost race.
func refused(ctx context.Context, err error) error {
	if err == nil {
		return nil
	}
	if ctx.Err() != nil && errors.Is(err, ctx.Err()) {
		return ctx.Err()
	}
	code, _ := errors.AsType[writers.Code](err)
	if slices.Contains([]writers.Code{writers.ErrSuperseded, writers.ErrInProgress, writers.ErrOutcomeUnknown}, code) {
		return broken("%w", err)
	}
	return badInput("%w", err)
}

// names checks that cmd got exactly the arguments that are named, and that a tenant can be one.
func names(want ...string) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		if len(args) != len(want) {
			return badInput("want %s, got %d arguments (see %s --help)", strings.Join(want, " "), len(args), cmd.CommandPath())
		}
		for i, limit := range []int{schema.MaxTenant, schema.MaxSession, schema.MaxCallKey}[:len(args)] {
			if err := schema.CheckID(want[i], args[i], limit); err != nil {
				return badInput("%w", err)
			}
		}
		return nil
	}
}

// getItem reads an item consistently; nil where there is none.
func (b *bench) getItem(ctx context.Context, table string, key schema.Key) (schema.Item, error) {
	out, err := b.client.GetItem(ctx, &dynamodb.GetItemInput{
		TableName: &table, ConsistentRead: aws.Bool(true),
		Key: key.Item(),
	})
	if err != nil {
		return nil, badInput("%s: %w", b.place, err)
	}
	if len(out.Item) == 0 {
		return nil, nil
	}
	return out.Item, nil
}

// placeFlags are the flags with which another command finds the same ledger.
func (o *operator) placeFlags() []string {
	var out []string
	o.cmd.Flags().Visit(func(f *pflag.Flag) {
		switch f.Name {
		case "local", "endpoint", "stack", "table", "control", "region", "skew", "keep":
			out = append(out, "--"+f.Name, f.Value.String())
		}
	})
	return out
}

var plainWord = regexp.MustCompile(`^[a-zA-Z0-9_./:=@%+,-]+$`)

// shellLine writes a command so that a shell takes it as meant.
func shellLine(words ...string) string {
	quoted := make([]string, len(words))
	for i, w := range words {
		if quoted[i] = w; !plainWord.MatchString(w) {
			quoted[i] = "'" + strings.ReplaceAll(w, "'", `'\''`) + "'"
		}
	}
	return strings.Join(quoted, " ")
}

// callLine is the command line with which a person looks at or decides on a call of the same ledger.
func (o *operator) callLine(command string, call []string, scope schema.Scope, flags ...string) string {
	if scope == schema.ScopeTenant {
		flags = append([]string{"--scope", string(scope)}, flags...)
	}
	flags = append(flags, o.placeFlags()...)
	words := []string{"toolledger", command}
	if slices.ContainsFunc(call, func(id string) bool { return strings.HasPrefix(id, "-") }) { // no flag, whatever it looks like
		return shellLine(slices.Concat(words, flags, []string{"--"}, call)...)
	}
	return shellLine(slices.Concat(words, call, flags)...)
}

// scopeFlag reads --scope.
func scopeFlag(text string) (schema.Scope, error) {
	switch scope := schema.Scope(text); scope {
	case schema.ScopeSession, schema.ScopeTenant:
		return scope, nil
	}
	return "", badInput("--scope %q: want session or tenant", text)
}

// callKey is the key of a call in its scope.
func callKey(scope schema.Scope, key string) writers.Key {
	if scope == schema.ScopeTenant {
		return writers.TenantKey(key)
	}
	return writers.SessionKey(key)
}

// stamp writes a moment for a person; "-" where there is none.
func stamp(t time.Time) string {
	if t.IsZero() {
		return "-"
	}
	return t.UTC().Format("2006-01-02 15:04:05Z")
}
