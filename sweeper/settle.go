package sweeper

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"

	"toolledger/internal/schema"
	"toolledger/writers"
)

// settle records an effect that the outside world says happened. The index does not hold all of a row (its cursor, what
// it compensates), so the row is read first; a row that has moved on is somebody else's. It returns what to do instead
// where the ledger cannot record it: an effect is never taken for absent.
func (r *run) settle(s step, asked time.Time) *step {
	if r.cfg.DryRun {
		r.count(func(p *Report) { p.Finalized++ })
		return nil
	}
	row, err := r.readWhole(s.row.Key)
	if err == nil && (row == nil || row.State != schema.StatePending || row.RowID != s.row.RowID || row.Version != s.row.Version) {
		r.count(func(p *Report) { p.LostRaces++ })
		return nil
	}
	moved := false
	if err == nil {
		moved, err = r.l.Settle(r.ctx, row, s.result)
	}
	switch {
	case err == nil && moved:
		r.count(func(p *Report) { p.Finalized++ })
	case err == nil:
		r.count(func(p *Report) { p.LostRaces++ })
	case r.ctx.Err() != nil:
		r.cutShort(1)
	default:
		code, _ := errors.AsType[writers.Code](err)
		r.l.Logger.LogAttrs(r.ctx, slog.LevelError, "verified effect not recorded",
			slog.String("tool", s.row.Tool), slog.String("row_id", s.row.RowID), slog.String("code", string(code)))
		if code == "" || code == writers.ErrUnavailable {
			r.count(func(p *Report) { p.Errors++ })
			return nil
		}
		// It happened, and what the verifier said of it does not fit: whatever the tool is, a person has to look in the end.
		later := r.judge(s.found, writers.EffectUnknown, nil, asked)
		if later.do == expire {
			later.do = hold
		}
		return &later
	}
	return nil
}

func (r *run) readWhole(key schema.Key) (*schema.Row, error) {
	out, err := r.l.Client.GetItem(r.ctx, &dynamodb.GetItemInput{
		TableName: aws.String(r.tables().Ledger), Key: key.Item(), ConsistentRead: aws.Bool(true),
	})
	r.count(func(p *Report) { p.Requests++ })
	if err != nil || len(out.Item) == 0 {
		return nil, err
	}
	return schema.DecodeRow(schema.FieldsOf(out.Item))
}

// outlive returns ctx, or, where it has ended, a context that goes on for a moment: what was written must be known.
func outlive(ctx context.Context) (context.Context, context.CancelFunc) {
	if ctx.Err() == nil {
		return ctx, func() {}
	}
	return context.WithTimeout(context.WithoutCancel(ctx), readBackTime)
}

const readBackTime = 2 * time.Second
