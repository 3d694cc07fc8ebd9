// Quickstart posts a note twice under one key. The note board is called once; the second call gets the stored receipt.
package main

import (
	"cmp"
	"context"
	"fmt"
	"log"
	"net/http"
	"os"
	"strings"

	"github.com/aws/aws-sdk-go-v2/config"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"

	"toolledger/writers"
)

// Note is what the tool takes.
type Note struct {
	Text string `json:"text" jsonschema:"the text to post"`
}

// Receipt is what it answers.
type Receipt struct {
	Location string `json:"location"`
}

// poster returns the tool that posts notes to the board at base.
func poster(base string) *writers.Tool[Note, Receipt] {
	return &writers.Tool[Note, Receipt]{
		Name: "post_note",
		Cost: 1,
		// The board knows idempotency keys, so posting again with the same effect key is harmless.
		Idempotent: true,
		Act: func(ctx context.Context, a writers.Attempt[Note]) (Receipt, error) {
			req, err := http.NewRequestWithContext(ctx, http.MethodPost, base+"/notes", strings.NewReader(a.Args.Text))
			if err != nil {
				return Receipt{}, writers.NotApplied(err) // not even sent: the tokens may be given back
			}
			req.Header.Set("Idempotency-Key", a.EffectKey)
			res, err := http.DefaultClient.Do(req)
			if err != nil {
				return Receipt{}, err // sent or not, nobody knows: the reservation stays, and the next call finds out
			}
			defer res.Body.Close()
			if res.StatusCode != http.StatusCreated {
				return Receipt{}, fmt.Errorf("the note board answered %s", res.Status)
			}
			return Receipt{Location: res.Header.Get("Location")}, nil
		},
	}
}

func main() {
	if err := run(context.Background()); err != nil {
		log.Fatal(err)
	}
}

func run(ctx context.Context) error {
	cfg, err := config.LoadDefaultConfig(ctx)
	if err != nil {
		return err
	}
	ledger, err := writers.New(dynamodb.NewFromConfig(cfg), writers.Config{Table: cmp.Or(os.Getenv("LEDGER_TABLE"), "toolledger")})
	if err != nil {
		return err
	}
	board, err := openBoard()
	if err != nil {
		return err
	}
	defer board.close()

	tool, session := poster(board.url), ledger.Tenant("acme").Session("quickstart")
	for range 2 {
		got, err := tool.Do(ctx, session, writers.SessionKey("step-1"), Note{Text: "hello"})
		if err != nil {
			return err
		}
		fmt.Println(got.Outcome, got.Value.Location)
	}
	fmt.Println("notes on the board of this run:", board.count())
	return ledger.Close(ctx)
}
