package streams

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"sync"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"

	"toolledger/internal/schema"
)

// LeaseTable is the part of *dynamodb.Client that a Poller calls, on the control table only.
//
// Contract: GetItem is called with consistent reads; UpdateItem's conditions are atomic with its writes. Nothing else keeps
// two pollers from owning one shard.
type LeaseTable interface {
	GetItem(context.Context, *dynamodb.GetItemInput, ...func(*dynamodb.Options)) (*dynamodb.GetItemOutput, error)
	UpdateItem(context.Context, *dynamodb.UpdateItemInput, ...func(*dynamodb.Options)) (*dynamodb.UpdateItemOutput, error)
}

// errLeaseLost says that another poller owns the shard by now.
var errLeaseLost = errors.New("another poller has taken the shard over")

// progress is how far a shard has been read.
type progress struct {
	checkpoint string // sequence number of the last record whose events are out; "": none
	finished   bool   // the shard is closed and read to its end
	version    int64  // fences: whoever writes with an older one has lost the lease
}

// leases keeps who reads which shard and how far it got.
type leases interface {
	// read returns what is known of a shard, whoever owns it.
	read(ctx context.Context, shard string) (p progress, known bool, err error)
	// acquire takes the lease if it is free, ours, or overdue.
	acquire(ctx context.Context, shard, parent string) (p progress, owned bool, err error)
	// save writes p, whose version must be the one of the last write, and renews the lease. Errors: errLeaseLost.
	save(ctx context.Context, shard string, p *progress) error
	// release gives the lease back for others to take at once.
	release(ctx context.Context, shard string, p *progress) error
}

// tableLeases keeps leases in the control table.
type tableLeases struct {
	client LeaseTable
	table  string
	stream string
	owner  string
	length time.Duration
	now    func() time.Time
}

const (
	leaseSkew   = 5 * time.Second    // how far the clocks of two pollers may be apart
	leaseRetain = 7 * 24 * time.Hour // a finished shard is forgotten after this; streams list it for a day
)

func (l *tableLeases) key(shard string) map[string]types.AttributeValue {
	return schema.LeaseKey(l.stream, shard).Item()
}

func (l *tableLeases) read(ctx context.Context, shard string) (progress, bool, error) {
	out, err := l.client.GetItem(ctx, &dynamodb.GetItemInput{
		TableName: &l.table, Key: l.key(shard), ConsistentRead: aws.Bool(true),
	})
	if err != nil {
		return progress{}, false, fmt.Errorf("read lease of %s: %w", shard, err)
	}
	return progressOf(out.Item), len(out.Item) > 0, nil
}

// progressOf reads an item; what it does not hold in the right type counts as absent.
func progressOf(item schema.Item) (p progress) {
	if v := schema.ValueOf(item[schema.ACheckpoint]); v.Type == schema.TypeString && isSequence(v.Text) {
		p.checkpoint = v.Text
	}
	p.finished = schema.ValueOf(item[schema.AFinished]).Bool
	p.version, _ = strconv.ParseInt(schema.ValueOf(item[schema.AVersion]).Text, 10, 64)
	return p
}

func (l *tableLeases) acquire(ctx context.Context, shard, parent string) (progress, bool, error) {
	p, _, err := l.read(ctx, shard)
	if err != nil || p.finished {
		return p, false, err
	}
	now := l.now()
	set := "SET #format = :format, #owner = :owner, #deadline = :deadline, #updatedAt = :now, " +
		"#version = if_not_exists(#version, :zero) + :one"
	values := schema.Item{
		":format": schema.N(schema.Format), ":owner": schema.S(l.owner), ":deadline": schema.Millis(now.Add(l.length)),
		":now": schema.Millis(now), ":zero": schema.N(0), ":one": schema.N(1), ":overdue": schema.Millis(now.Add(-leaseSkew)),
	}
	names := aliasesOf(schema.AFormat, schema.AOwner, schema.ADeadline, schema.AUpdatedAt, schema.AVersion, schema.AFinished)
	if parent != "" {
		set += ", #parent = :parent"
		values[":parent"], names["#"+schema.AParent] = schema.S(parent), schema.AParent
	}
	out, err := l.client.UpdateItem(ctx, &dynamodb.UpdateItemInput{
		TableName: &l.table, Key: l.key(shard), UpdateExpression: &set, ReturnValues: types.ReturnValueAllNew,
		ConditionExpression: aws.String("attribute_not_exists(#finished) AND " +
			"(attribute_not_exists(#owner) OR #owner = :owner OR #deadline < :overdue)"),
		ExpressionAttributeNames: names, ExpressionAttributeValues: values,
	})
	if _, taken := errors.AsType[*types.ConditionalCheckFailedException](err); taken {
		return progress{}, false, nil
	}
	if err != nil {
		return progress{}, false, fmt.Errorf("acquire lease of %s: %w", shard, err)
	}
	return progressOf(out.Attributes), true, nil
}

func aliasesOf(attrs ...string) map[string]string {
	names := make(map[string]string, len(attrs))
	for _, a := range attrs {
		names["#"+a] = a
	}
	return names
}

func (l *tableLeases) save(ctx context.Context, shard string, p *progress) error {
	now := l.now()
	set := "SET #deadline = :deadline, #updatedAt = :now, #version = #version + :one"
	values := schema.Item{":deadline": schema.Millis(now.Add(l.length)), ":now": schema.Millis(now)}
	names := aliasesOf(schema.ADeadline, schema.AUpdatedAt)
	if p.checkpoint != "" {
		set += ", #checkpoint = :checkpoint"
		values[":checkpoint"], names["#"+schema.ACheckpoint] = schema.S(p.checkpoint), schema.ACheckpoint
	}
	if p.finished {
		set += ", #finished = :finished, #expiresAt = :expiresAt"
		values[":finished"], names["#"+schema.AFinished] = schema.Bool(true), schema.AFinished
		values[":expiresAt"], names["#"+schema.AExpiresAt] = schema.Seconds(now.Add(leaseRetain)), schema.AExpiresAt
	}
	return l.write(ctx, shard, p, set, names, values)
}

func (l *tableLeases) release(ctx context.Context, shard string, p *progress) error {
	set := "SET #updatedAt = :now, #version = #version + :one REMOVE #deadline, #owner"
	names := aliasesOf(schema.AUpdatedAt, schema.ADeadline)
	return l.write(ctx, shard, p, set, names, schema.Item{":now": schema.Millis(l.now())})
}

// write updates a lease that is still ours: by name, and by the version of our own last write, so that even two processes
// of one name cannot both own a shard.
func (l *tableLeases) write(
	ctx context.Context, shard string, p *progress, set string, names map[string]string, values schema.Item,
) error {
	names["#"+schema.AOwner], names["#"+schema.AVersion] = schema.AOwner, schema.AVersion
	values[":owner"], values[":version"], values[":one"] = schema.S(l.owner), schema.N(p.version), schema.N(1)
	out, err := l.client.UpdateItem(ctx, &dynamodb.UpdateItemInput{
		TableName: &l.table, Key: l.key(shard), UpdateExpression: &set, ReturnValues: types.ReturnValueAllNew,
		ConditionExpression:      aws.String("#owner = :owner AND #version = :version"),
		ExpressionAttributeNames: names, ExpressionAttributeValues: values,
	})
	if _, lost := errors.AsType[*types.ConditionalCheckFailedException](err); lost {
		return l.recognise(ctx, shard, p)
	}
	if err != nil {
		return fmt.Errorf("write lease of %s: %w", shard, err)
	}
	p.version = progressOf(out.Attributes).version
	return nil
}

// recognise tells whether the write that found another version was preceded by our own, whose answer was lost: then the
// item has our name and one version more, and holds what we wrote.
func (l *tableLeases) recognise(ctx context.Context, shard string, p *progress) error {
	out, err := l.client.GetItem(ctx, &dynamodb.GetItemInput{
		TableName: &l.table, Key: l.key(shard), ConsistentRead: aws.Bool(true),
	})
	if err != nil {
		return fmt.Errorf("read lease of %s: %w", shard, err)
	}
	found := progressOf(out.Item)
	if schema.ValueOf(out.Item[schema.AOwner]).Text != l.owner || found.version != p.version+1 ||
		found.checkpoint != p.checkpoint || found.finished != p.finished {
		return errLeaseLost
	}
	p.version = found.version
	return nil
}

// memoryLeases are for a poller that reads beside others without disturbing them: it begins at the horizon and remembers
// only for itself.
type memoryLeases struct {
	mu    sync.Mutex
	known map[string]progress
}

func (l *memoryLeases) read(_ context.Context, shard string) (progress, bool, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	p, known := l.known[shard]
	return p, known, nil
}

func (l *memoryLeases) acquire(ctx context.Context, shard, _ string) (progress, bool, error) {
	p, _, _ := l.read(ctx, shard)
	return p, !p.finished, nil
}

func (l *memoryLeases) save(_ context.Context, shard string, p *progress) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.known[shard] = *p
	return nil
}

func (l *memoryLeases) release(context.Context, string, *progress) error { return nil }
