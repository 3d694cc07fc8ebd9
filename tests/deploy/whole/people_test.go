package whole_test

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	v4 "github.com/aws/aws-sdk-go-v2/aws/signer/v4"
	"github.com/aws/aws-sdk-go-v2/service/eventbridge"
	eventbridgetypes "github.com/aws/aws-sdk-go-v2/service/eventbridge/types"
	"github.com/aws/aws-sdk-go-v2/service/iam"
	"github.com/aws/aws-sdk-go-v2/service/sqs"
	sqstypes "github.com/aws/aws-sdk-go-v2/service/sqs/types"
	"github.com/aws/aws-sdk-go-v2/service/sts"

	"toolledger/streams/events"
)

// person is somebody who has assumed a role.
type person struct {
	*deployment
	cfg aws.Config
}

// assume makes a role that may call the given part of the HTTP API, and assumes it.
func (d *deployment) assume(t *testing.T, role, resource string) *person {
	t.Helper()
	admin := iam.NewFromConfig(d.root())
	trust := `{"Version":"2012-10-17","Statement":[{"Effect":"Allow","Principal":{"AWS":"arn:aws:iam::` + account + `:root"},"Action":"sts:AssumeRole"}]}`
	made, err := admin.CreateRole(t.Context(), &iam.CreateRoleInput{RoleName: &role, AssumeRolePolicyDocument: &trust})
	if err != nil {
		t.Fatal(err)
	}
	policy := `{"Version":"2012-10-17","Statement":[{"Effect":"Allow","Action":"execute-api:Invoke","Resource":"` + resource + `"}]}`
	if _, err := admin.PutRolePolicy(t.Context(), &iam.PutRolePolicyInput{RoleName: &role, PolicyName: aws.String("call"), PolicyDocument: &policy}); err != nil {
		t.Fatal(err)
	}
	got, err := sts.NewFromConfig(d.root()).AssumeRole(t.Context(), &sts.AssumeRoleInput{RoleArn: made.Role.Arn, RoleSessionName: aws.String("run-7")})
	if err != nil {
		t.Fatal(err)
	}
	c := got.Credentials
	return &person{d, d.config(aws.ToString(c.AccessKeyId), aws.ToString(c.SecretAccessKey), aws.ToString(c.SessionToken))}
}

// call sends a signed request to the HTTP API.
func (p *person) call(t *testing.T, method, path string, body any) (int, map[string]any) {
	t.Helper()
	text, err := json.Marshal(body)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 40*time.Second)
	defer cancel()
	gateway, err := url.Parse(p.url)
	if err != nil {
		t.Fatal(err)
	}
	req, err := http.NewRequestWithContext(ctx, method, p.url+path, bytes.NewReader(text))
	if err != nil {
		t.Fatal(err)
	}
	req.Host = p.ids["HttpApi"] + ".execute-api." + gateway.Host
	req.Header.Set("Content-Type", "application/json")
	who, err := p.cfg.Credentials.Retrieve(ctx)
	if err != nil {
		t.Fatal(err)
	}
	sum := sha256.Sum256(text)
	if err := v4.NewSigner().SignHTTP(ctx, who, req, hex.EncodeToString(sum[:]), "execute-api", region, time.Now()); err != nil {
		t.Fatal(err)
	}
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	answer, err := io.ReadAll(res.Body)
	if err != nil {
		t.Fatal(err)
	}
	var doc map[string]any
	if err := json.Unmarshal(answer, &doc); err != nil {
		t.Fatalf("%s %s: %d %s", method, path, res.StatusCode, answer)
	}
	return res.StatusCode, doc
}

// post sends a request that must be answered with the status.
func (p *person) post(t *testing.T, want int, op string, body map[string]any) map[string]any {
	t.Helper()
	status, doc := p.call(t, http.MethodPost, "/v1/"+op, body)
	if status != want {
		t.Fatalf("%s: %d %v, want %d", op, status, doc, want)
	}
	return doc
}

// subscriber has a queue behind a rule of its own on the bus.
type subscriber struct {
	client *sqs.Client
	queue  *string
	got    map[string]events.Event // by id: a bus may deliver twice
}

func (d *deployment) subscribe(t *testing.T) *subscriber {
	t.Helper()
	s := &subscriber{client: sqs.NewFromConfig(d.root()), got: map[string]events.Event{}}
	made, err := s.client.CreateQueue(t.Context(), &sqs.CreateQueueInput{QueueName: aws.String("subscriber")})
	if err != nil {
		t.Fatal(err)
	}
	s.queue = made.QueueUrl
	arn := "arn:aws:sqs:" + region + ":" + account + ":subscriber"
	policy := `{"Version":"2012-10-17","Statement":[{"Effect":"Allow","Principal":{"Service":"events.amazonaws.com"},"Action":"sqs:SendMessage","Resource":"` + arn + `"}]}`
	if _, err := s.client.SetQueueAttributes(t.Context(), &sqs.SetQueueAttributesInput{
		QueueUrl: s.queue, Attributes: map[string]string{string(sqstypes.QueueAttributeNamePolicy): policy},
	}); err != nil {
		t.Fatal(err)
	}
	bus := d.outputs["EventBusName"]
	client := eventbridge.NewFromConfig(d.root())
	if _, err := client.PutRule(t.Context(), &eventbridge.PutRuleInput{
		Name: aws.String("all"), EventBusName: &bus, EventPattern: aws.String(`{"source":["toolledger"]}`),
	}); err != nil {
		t.Fatal(err)
	}
	if _, err := client.PutTargets(t.Context(), &eventbridge.PutTargetsInput{
		Rule: aws.String("all"), EventBusName: &bus, Targets: []eventbridgetypes.Target{{Id: aws.String("queue"), Arn: &arn}},
	}); err != nil {
		t.Fatal(err)
	}
	return s
}

// has tells whether an event of that kind about that call has come.
func (s *subscriber) has(t *testing.T, kind, key string) bool {
	t.Helper()
	out, err := s.client.ReceiveMessage(t.Context(), &sqs.ReceiveMessageInput{QueueUrl: s.queue, MaxNumberOfMessages: 10})
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range out.Messages {
		ev, err := events.Parse([]byte(aws.ToString(m.Body)))
		if err != nil {
			t.Fatalf("%v: %s", err, aws.ToString(m.Body))
		}
		s.got[ev.Head().ID] = ev
		if _, err := s.client.DeleteMessage(t.Context(), &sqs.DeleteMessageInput{QueueUrl: s.queue, ReceiptHandle: m.ReceiptHandle}); err != nil {
			t.Fatal(err)
		}
	}
	for _, ev := range s.got {
		if ev.DetailType() == kind && (key == "" || ev.Head().Key == key) {
			return true
		}
	}
	return false
}

// kinds counts the events that have come.
func (s *subscriber) kinds() string {
	count := map[string]int{}
	for _, ev := range s.got {
		count[ev.DetailType()]++
	}
	return strings.TrimPrefix(fmt.Sprint(count), "map")
}
