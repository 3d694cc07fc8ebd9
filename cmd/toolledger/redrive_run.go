package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"log/slog"
	"os"
	"strings"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/s3"

	"toolledger/internal/progress"
	"toolledger/streams"
	"toolledger/streams/events"
)

const (
	s3Scheme = "s3://"

	redriveRecords = 500     // published together
	redriveBytes   = 8 << 20 // of them
	redrivePages   = 1_000_000
)

// redriver redrives one source.
type redriver struct {
	app      *app
	flags    *redriveFlags
	s3       *s3.Client
	out      *outlet
	consumer *streams.Consumer
	result   *redriveResult
	bar      *progress.Bar

	file    string // that is read
	waiting []piece
	size    int              // bytes of what waits
	offsets map[string]int64 // of those, by sequence number; nil: not looked at yet
}

func (a *app) newRedriver(ctx context.Context, source string, f *redriveFlags) (*redriver, error) {
	d := &redriver{app: a, flags: f, result: &redriveResult{
		Source: source, Bus: f.bus, DryRun: f.dryRun, FaultList: []redriveFault{}, UnreadableList: []redriveUnreadable{},
	}}
	var cfg aws.Config
	if strings.HasPrefix(source, s3Scheme) || !f.dryRun {
		var err error
		if cfg, err = a.awsConfig(ctx, &f.where); err != nil {
			return nil, err
		}
		d.s3 = s3.NewFromConfig(cfg, func(o *s3.Options) {
			if own := os.Getenv("AWS_ENDPOINT_URL_S3"); own != "" {
				o.BaseEndpoint = aws.String(own)
			}
			o.UsePathStyle = o.BaseEndpoint != nil
		})
	}
	var err error
	if d.out, err = a.newOutlet(cfg, &f.busFlags); err != nil {
		return nil, err
	}
	// The report says what cannot be understood; the log would say it a second time, and each metric was counted then.
	d.consumer, err = streams.NewConsumer(streams.ConsumerConfig{
		Publisher: streams.PublisherFunc(d.publish), Unreadable: func(context.Context, []byte) error { return nil },
		Now: a.now, Logger: slog.New(slog.DiscardHandler),
	})
	if err != nil {
		return nil, badInput("%w", err)
	}
	d.bar = a.progress("redriving "+printable(source), 0)
	return d, nil
}

func (d *redriver) run(ctx context.Context, source string) error {
	if rest, ok := strings.CutPrefix(source, s3Scheme); ok {
		return d.bucket(ctx, rest)
	}
	from := d.app.stdin
	if source != "-" {
		file, err := os.Open(source)
		if err != nil {
			return badInput("%w", err)
		}
		defer file.Close()
		if info, err := file.Stat(); err == nil && info.IsDir() {
			return badInput("%s is a directory: want a file", printable(source))
		}
		from = file
	}
	_, err := d.read(ctx, source, from)
	return err
}

// bucket redrives the object of a key or, where there is none, all whose keys begin with it, one after the other.
func (d *redriver) bucket(ctx context.Context, source string) error {
	bucket, prefix, _ := strings.Cut(source, "/")
	if bucket == "" {
		return badInput("s3://%s: want s3://BUCKET/KEY or s3://BUCKET/PREFIX", printable(source))
	}
	in := &s3.ListObjectsV2Input{Bucket: &bucket, Prefix: &prefix}
	if d.flags.after != "" {
		in.StartAfter = &d.flags.after
	}
	found := 0
	for range redrivePages {
		out, err := d.s3.ListObjectsV2(ctx, in)
		if err != nil {
			return badInput("list s3://%s/%s: %w", bucket, printable(prefix), err)
		}
		for i := range out.Contents {
			key := aws.ToString(out.Contents[i].Key)
			if key == "" || strings.HasSuffix(key, "/") && aws.ToInt64(out.Contents[i].Size) == 0 { // a folder, as the console makes them
				continue
			}
			found++
			if err := d.object(ctx, bucket, key); err != nil {
				return err
			}
			if key == prefix { // it sorts before all that begin with it
				return nil
			}
		}
		if !aws.ToBool(out.IsTruncated) || out.NextContinuationToken == nil {
			break
		}
		in.ContinuationToken, in.StartAfter = out.NextContinuationToken, nil
	}
	if found == 0 && d.flags.after == "" {
		return badInput("there is no object s3://%s/%s, and none whose key begins so", bucket, printable(prefix))
	}
	return nil
}

func (d *redriver) object(ctx context.Context, bucket, key string) error {
	name := s3Scheme + bucket + "/" + key
	out, err := d.s3.GetObject(ctx, &s3.GetObjectInput{Bucket: &bucket, Key: &key})
	if err != nil {
		if ctx.Err() != nil {
			return ctx.Err()
		}
		d.file = name
		d.fault(0, "it cannot be read: "+oneLine(err))
		return nil
	}
	clean, err := d.read(ctx, name, out.Body)
	if cerr := out.Body.Close(); err == nil && cerr != nil {
		clean = false
	}
	if err != nil {
		return err
	}
	d.result.After = key
	if !clean || !d.flags.remove {
		return nil
	}
	if _, err := d.s3.DeleteObject(ctx, &s3.DeleteObjectInput{Bucket: &bucket, Key: &key}); err != nil {
		return badInput("%s is redriven and cannot be deleted: %w", printable(name), err)
	}
	d.result.Deleted++
	return nil
}

// read redrives a file. clean says that everything in it is out. Errors: the bus's, ctx's.
func (d *redriver) read(ctx context.Context, name string, from io.Reader) (clean bool, err error) {
	d.file = name
	r := d.result
	before := r.Faults + r.Unreadable + d.out.refusals
	reader := redriveReader{table: d.flags.where.table, fault: d.fault, piece: func(p piece) error {
		d.waiting = append(d.waiting, p)
		if d.size += p.size(); len(d.waiting) < redriveRecords && d.size < redriveBytes {
			return nil
		}
		return d.flush(ctx)
	}}
	if err := reader.read(&interruptible{ctx, from}); err != nil {
		return false, err
	}
	if err := d.flush(ctx); err != nil {
		return false, err
	}
	if err := ctx.Err(); err != nil {
		return false, err
	}
	r.Files++
	d.bar.Add(1)
	return r.Faults+r.Unreadable+d.out.refusals == before, nil
}

// interruptible is a file that ends with ctx.
type interruptible struct {
	ctx  context.Context
	from io.Reader
}

func (i *interruptible) Read(p []byte) (int, error) {
	if err := i.ctx.Err(); err != nil {
		return 0, err
	}
	return i.from.Read(p)
}

func (d *redriver) fault(offset int64, rule string) {
	if d.result.Faults++; len(d.result.FaultList) < maxListed {
		d.result.FaultList = append(d.result.FaultList, redriveFault{d.file, offset, rule})
	}
}

// flush publishes what waits: records by way of the consumer, events as they are.
func (d *redriver) flush(ctx context.Context) error {
	var batch bytes.Buffer
	var ready []events.Event
	records := 0
	batch.WriteString(`{"Records":[`)
	for _, p := range d.waiting {
		if p.event != nil {
			ready = append(ready, p.event)
			continue
		}
		if records > 0 {
			batch.WriteByte(',')
		}
		batch.Write(p.record)
		records++
	}
	batch.WriteString("]}")
	if len(ready) > 0 {
		if out, err := d.publish(ctx, ready); err != nil || out < len(ready) {
			return d.stopped(ctx, err)
		}
	}
	if records > 0 {
		done, err := d.consumer.Redrive(ctx, batch.Bytes())
		d.result.Records += done.Done
		if err != nil {
			return d.stopped(ctx, err)
		}
	}
	clear(d.waiting)
	d.waiting, d.size, d.offsets = d.waiting[:0], 0, nil
	return nil
}

func (d *redriver) stopped(ctx context.Context, err error) error {
	switch {
	case ctx.Err() != nil:
		return ctx.Err()
	case err == nil:
		err = errors.New("the bus took less than all events and gave no reason")
	}
	return badInput("%s: %w", printable(d.file), err)
}

// publish sends events, and notes those that tell of a record that cannot be understood.
func (d *redriver) publish(ctx context.Context, evs []events.Event) (int, error) {
	out, err := d.out.Publish(ctx, evs)
	for _, ev := range evs[:max(0, min(out, len(evs)))] {
		d.result.Events++
		u, ok := ev.(*events.AuditRecordUnreadable)
		if !ok {
			continue
		}
		if d.result.Unreadable++; len(d.result.UnreadableList) < maxListed {
			d.result.UnreadableList = append(d.result.UnreadableList, redriveUnreadable{d.file, d.offsetOf(u.Sequence), u.Sequence, u.Attribute, u.Rule})
		}
	}
	return out, err
}

// offsetOf finds the waiting record of a sequence number.
func (d *redriver) offsetOf(sequence string) int64 {
	if d.offsets == nil {
		d.offsets = make(map[string]int64, len(d.waiting))
		for _, p := range d.waiting {
			var v struct {
				Content struct {
					Sequence string `json:"SequenceNumber"`
				} `json:"dynamodb"`
			}
			if p.record != nil && json.Unmarshal(p.record, &v) == nil {
				d.offsets[v.Content.Sequence] = p.offset
			}
		}
	}
	if at, ok := d.offsets[sequence]; ok {
		return at
	}
	return d.waiting[0].offset
}
