package main

import (
	"context"
	"crypto/rand"
	"errors"
	"strconv"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"
)

// floor makes the ledger's requests without the ledger: the plainest code that sends the same bytes. What it knows
// beforehand (hashes, texts of arguments and results, expressions and their names) is given to it.
type floor struct {
	db                    *dynamodb.Client
	intentHash, argHashes []byte
	resultJSON            string
}

type (
	item = map[string]types.AttributeValue
	str  = types.AttributeValueMemberS
	num  = types.AttributeValueMemberN
	bin  = types.AttributeValueMemberB
)

const (
	pk     = "TENANT#" + tenant + "#SESSION#" + session
	allOld = types.ReturnValuesOnConditionCheckFailureAllOld
	keep   = 30 * 24 * time.Hour // of rows and observations
)

func millis(t time.Time) *num { return &num{Value: strconv.FormatInt(t.UnixMilli(), 10)} }

func seconds(t time.Time) *num {
	return &num{Value: strconv.FormatInt(t.Add(time.Second-1).Unix(), 10)}
}

// commit is quota, row and cursor in one transaction.
func (f *floor) commit(ctx context.Context, n int64) error {
	now := time.Now()
	row := f.row(keyOf(n), rand.Text(), now)
	row["state"] = &str{Value: "applied"}
	row["chargedTokens"] = &num{Value: "1200"}
	row["resultJson"] = &str{Value: f.resultJSON}
	row["appliedAttempt"] = &num{Value: "1"}
	row["settledBy"] = &str{Value: "holder"}
	row["expiresAt"] = seconds(now.Add(keep))
	_, err := f.db.TransactWriteItems(ctx, &dynamodb.TransactWriteItemsInput{
		TransactItems: []types.TransactWriteItem{f.put(row, now), f.debit(now), f.moveCursor(now)},
	})
	return err
}

// row is what the rows of a commit and of a reserve have in common.
func (f *floor) row(key, id string, now time.Time) item {
	r := make(item, 24)
	r["pk"], r["sk"] = &str{Value: pk}, &str{Value: "TOOL#" + key}
	r["format"], r["version"], r["attempt"] = &num{Value: "1"}, &num{Value: "1"}, &num{Value: "1"}
	r["rowId"], r["holder"] = &str{Value: id}, &str{Value: id}
	r["tool"] = &str{Value: tool}
	r["intentHash"], r["argHashes"] = &bin{Value: f.intentHash}, &bin{Value: f.argHashes}
	r["session"], r["scope"] = &str{Value: session}, &str{Value: "session"}
	r["horizon"], r["cursor"] = &num{Value: "60000"}, &str{Value: cursor}
	r["reservedTokens"] = &num{Value: "1200"}
	r["debits"] = debits(now)
	r["createdAt"], r["updatedAt"] = millis(now), millis(now)
	return r
}

func debits(now time.Time) types.AttributeValue {
	return &types.AttributeValueMemberM{Value: item{now.UTC().Format("2006-01") + "/0": &num{Value: "1200"}}}
}

var putNames = map[string]string{"#pk": "pk", "#state": "state", "#expiresAt": "expiresAt"}

func (f *floor) put(row item, now time.Time) types.TransactWriteItem {
	return types.TransactWriteItem{Put: &types.Put{
		TableName: aws.String(table), Item: row,
		ConditionExpression:      aws.String("attribute_not_exists(#pk) OR (#state IN (:applied, :failed) AND #expiresAt < :now)"),
		ExpressionAttributeNames: putNames,
		ExpressionAttributeValues: item{
			":applied": &str{Value: "applied"}, ":failed": &str{Value: "failed"},
			":now": &num{Value: strconv.FormatInt(now.Unix(), 10)},
		},
		ReturnValuesOnConditionCheckFailure: allOld,
	}}
}

var debitNames = map[string]string{"#version": "version", "#remaining": "remaining", "#suspended": "suspended"}

func (f *floor) debit(now time.Time) types.TransactWriteItem {
	return types.TransactWriteItem{Update: &types.Update{
		TableName:                           aws.String(table),
		Key:                                 item{"pk": &str{Value: "TENANT#" + tenant}, "sk": &str{Value: "QUOTA#" + now.UTC().Format("2006-01")}},
		ConditionExpression:                 aws.String("#remaining >= :n AND attribute_not_exists(#suspended)"),
		UpdateExpression:                    aws.String("SET #remaining = #remaining - :n, #version = #version + :one"),
		ExpressionAttributeNames:            debitNames,
		ExpressionAttributeValues:           item{":n": &num{Value: "1200"}, ":one": &num{Value: "1"}},
		ReturnValuesOnConditionCheckFailure: allOld,
	}}
}

var cursorNames = map[string]string{
	"#cursor": "cursor", "#format": "format", "#updatedAt": "updatedAt", "#expiresAt": "expiresAt", "#version": "version",
}

func (f *floor) moveCursor(now time.Time) types.TransactWriteItem {
	return types.TransactWriteItem{Update: &types.Update{
		TableName: aws.String(table),
		Key:       item{"pk": &str{Value: pk}, "sk": &str{Value: "META"}},
		UpdateExpression: aws.String("SET #cursor = :cursor, #format = :format, #updatedAt = :now, #expiresAt = :expires, " +
			"#version = if_not_exists(#version, :zero) + :one"),
		ExpressionAttributeNames: cursorNames,
		ExpressionAttributeValues: item{
			":cursor": &str{Value: cursor}, ":format": &num{Value: "1"}, ":now": millis(now),
			":expires": seconds(now.Add(2 * keep)), ":zero": &num{Value: "0"}, ":one": &num{Value: "1"},
		},
		ReturnValuesOnConditionCheckFailure: allOld,
	}}
}

// replay is a commit that finds its row applied: it takes the stored result and counts the replay.
func (f *floor) replay(ctx context.Context, n int64) error {
	err := f.commit(ctx, n)
	e, ok := errors.AsType[*types.TransactionCanceledException](err)
	if !ok {
		return errors.Join(errors.New("not refused"), err)
	}
	if stored, ok := e.CancellationReasons[0].Item["resultJson"].(*str); !ok || stored.Value != f.resultJSON {
		return errors.New("another result")
	}
	return f.observe(ctx, n)
}

var observationNames = map[string]string{
	"#format": "format", "#obsId": "obsId", "#tool": "tool", "#session": "session", "#updatedAt": "updatedAt",
	"#expiresAt": "expiresAt", "#version": "version", "#duplicates": "duplicates",
}

func (f *floor) observe(ctx context.Context, n int64) error {
	now := time.Now()
	_, err := f.db.UpdateItem(ctx, &dynamodb.UpdateItemInput{
		TableName: aws.String(table),
		Key:       item{"pk": &str{Value: "OBS#" + pk}, "sk": &str{Value: "TOOL#" + keyOf(n)}},
		UpdateExpression: aws.String("SET #format = :format, #obsId = if_not_exists(#obsId, :obsId), #tool = :tool, #session = :session, " +
			"#updatedAt = :updatedAt, #expiresAt = :expiresAt ADD #version :one, #duplicates :duplicates"),
		ExpressionAttributeNames: observationNames,
		ExpressionAttributeValues: item{
			":format": &num{Value: "1"}, ":obsId": &str{Value: rand.Text()}, ":tool": &str{Value: tool},
			":session": &str{Value: session}, ":updatedAt": millis(now), ":expiresAt": seconds(now.Add(keep)),
			":one": &num{Value: "1"}, ":duplicates": &num{Value: "1"},
		},
	})
	return err
}

// replayRead is a retry that says so: it reads the row first, and counts the replay.
func (f *floor) replayRead(ctx context.Context, n int64) error {
	out, err := f.db.GetItem(ctx, &dynamodb.GetItemInput{
		TableName: aws.String(table), ConsistentRead: aws.Bool(true),
		Key: item{"pk": &str{Value: pk}, "sk": &str{Value: "TOOL#" + keyOf(n)}},
	})
	if err != nil {
		return err
	}
	if stored, ok := out.Item["resultJson"].(*str); !ok || stored.Value != f.resultJSON {
		return errors.New("another result")
	}
	return f.observe(ctx, n)
}

// reserveFinalize is the two transactions of a tool that cannot be undone.
func (f *floor) reserveFinalize(ctx context.Context, n int64) error {
	now, key, id := time.Now(), keyOf(n), rand.Text()
	row := f.row(key, id, now)
	row["state"] = &str{Value: "pending"}
	row["deadline"] = millis(now.Add(time.Minute))
	row["pendingBucket"] = &str{Value: "PENDING#1"}
	_, err := f.db.TransactWriteItems(ctx, &dynamodb.TransactWriteItemsInput{
		TransactItems: []types.TransactWriteItem{f.put(row, now), f.debit(now)},
	})
	if err != nil {
		return err
	}
	now = time.Now()
	_, err = f.db.TransactWriteItems(ctx, &dynamodb.TransactWriteItemsInput{
		TransactItems: []types.TransactWriteItem{f.finalize(key, id, now), f.moveCursor(now)},
	})
	return err
}

var finalizeNames = map[string]string{
	"#version": "version", "#state": "state", "#appliedAttempt": "appliedAttempt", "#updatedAt": "updatedAt",
	"#expiresAt": "expiresAt", "#settledBy": "settledBy", "#resultJson": "resultJson", "#debits": "debits",
	"#chargedTokens": "chargedTokens", "#lastDeadline": "lastDeadline", "#deadline": "deadline", "#failure": "failure",
	"#shortfall": "shortfall", "#by": "by", "#why": "why", "#pendingBucket": "pendingBucket", "#sweepAt": "sweepAt",
	"#held": "held", "#rowId": "rowId", "#attempt": "attempt",
}

func (f *floor) finalize(key, id string, now time.Time) types.TransactWriteItem {
	return types.TransactWriteItem{Update: &types.Update{
		TableName:           aws.String(table),
		Key:                 item{"pk": &str{Value: pk}, "sk": &str{Value: "TOOL#" + key}},
		ConditionExpression: aws.String("#state = :guardState AND #rowId = :guardRow AND #attempt = :guardAttempt"),
		UpdateExpression: aws.String("SET #version = #version + :one, #state = :state, #appliedAttempt = :appliedAttempt, " +
			"#updatedAt = :updatedAt, #expiresAt = :expiresAt, #settledBy = :settledBy, #resultJson = :resultJson, " +
			"#debits = :debits, #chargedTokens = :chargedTokens, #lastDeadline = #deadline " +
			"REMOVE #failure, #shortfall, #by, #why, #deadline, #pendingBucket, #sweepAt, #held"),
		ExpressionAttributeNames: finalizeNames,
		ExpressionAttributeValues: item{
			":one": &num{Value: "1"}, ":state": &str{Value: "applied"}, ":appliedAttempt": &num{Value: "1"},
			":updatedAt": millis(now), ":expiresAt": seconds(now.Add(keep)), ":settledBy": &str{Value: "holder"},
			":resultJson": &str{Value: f.resultJSON}, ":debits": debits(now), ":chargedTokens": &num{Value: "1200"},
			":guardState": &str{Value: "pending"}, ":guardRow": &str{Value: id}, ":guardAttempt": &num{Value: "1"},
		},
		ReturnValuesOnConditionCheckFailure: allOld,
	}}
}
