package server

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"io/fs"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	pointsmanv1 "github.com/pointsman-dev/pointsman/gen/go/pointsman/v1"
	"github.com/pointsman-dev/pointsman/probe/lexical"
	"github.com/pointsman-dev/pointsman/scorer"
)

// TestTheShippedCheckpointIsTheOneItsRecordIsOf looks at what is compiled in.
func TestTheShippedCheckpointIsTheOneItsRecordIsOf(t *testing.T) {
	dir := t.TempDir()
	if err := saveDemoCheckpoints(dir); err != nil {
		t.Fatal(err)
	}
	checkpoint, err := scorer.Load(filepath.Join(dir, "learned"))
	if err != nil {
		t.Fatal(err)
	}
	if m := checkpoint.Manifest(); m.Encoder != lexical.Encoder || m.HiddenSize != lexical.Dim {
		t.Errorf("it is for %s with %d values", m.Encoder, m.HiddenSize)
	}
	var bytes int64
	err = fs.WalkDir(demoData, demoLearned, func(_ string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		info, err := d.Info()
		bytes += info.Size()
		return err
	})
	if err != nil || bytes > 6<<20 {
		t.Errorf("%d bytes, %v", bytes, err)
	}
	raw, err := os.ReadFile(filepath.Join(demoLearned, "train.json"))
	if err != nil {
		t.Fatal(err)
	}
	var record struct {
		Checkpoint string `json:"checkpoint_digest"`
		Recipe     struct {
			HoldOut int `json:"hold_out"`
		} `json:"recipe"`
	}
	if err := json.Unmarshal(raw, &record); err != nil {
		t.Fatal(err)
	}
	if record.Checkpoint != checkpoint.Digest() {
		t.Errorf("train.json is of %s, the checkpoint is %s", record.Checkpoint, checkpoint.Digest())
	}
	if record.Recipe.HoldOut != 51 {
		t.Errorf("it was trained with hold-out %d: the report is of held-out questions only with 51", record.Recipe.HoldOut)
	}
	if _, err := demoData.Open(demoLearned + "/train.json"); err != nil {
		t.Errorf("the demo cannot compare its scores with any: %v", err)
	}
	readme, err := os.ReadFile(filepath.Join(demoLearned, "README.md"))
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{checkpoint.Digest(), "lm-sys/RouteLLM", "Apache", "pointsman train"} {
		if !strings.Contains(string(readme), want) {
			t.Errorf("its README does not name %q", want)
		}
	}
}

// announced hands on the address in the demo's greeting.
type announced chan string

func (a announced) Write(b []byte) (int, error) {
	if _, rest, ok := strings.Cut(string(b), "gRPC   "); ok {
		a <- strings.Fields(rest)[0]
	}
	return len(b), nil
}

func TestDemo(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	address, done := make(announced, 1), make(chan error, 1)
	go func() {
		done <- Demo(ctx, DemoOptions{Listen: "127.0.0.1:0", Admin: "127.0.0.1:0"}, address, io.Discard)
	}()
	defer func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	}()
	var at string
	select {
	case at = <-address:
	case err := <-done:
		done <- nil
		t.Fatal(err)
	}
	conn, err := grpc.NewClient(at, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close() }()
	client := pointsmanv1.NewDecisionServiceClient(conn)
	for _, c := range []struct{ route, task, target string }{
		// The greeting's.
		{"", "What is 2+2?", "weak"},
		{"", "Prove that there are infinitely many primes congruent to 3 modulo 4.", "strong"},
		{"stand-in", "What is 2+2?", "weak"},
		{"stand-in", "Prove that there are infinitely many primes congruent to 3 modulo 4.", "strong"},
	} {
		t.Run(fmt.Sprintf("%s %.12s", c.route, c.task), func(t *testing.T) {
			ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
			defer cancel()
			d, err := client.Decide(ctx, &pointsmanv1.DecideRequest{
				Route: c.route, Input: &pointsmanv1.DecideRequest_Task{Task: c.task},
			})
			if err != nil {
				t.Fatal(err)
			}
			if d.GetBasis() != pointsmanv1.Basis_BASIS_LEARNED || d.GetTarget() != c.target {
				t.Errorf("%v %s, want LEARNED %s", d.GetBasis(), d.GetTarget(), c.target)
			}
			for _, s := range d.GetScores() {
				if p := s.GetProbability(); math.IsNaN(p) || p < 0.2 || p > 0.99 {
					t.Errorf("%s has the probability %v", s.GetTarget(), p)
				}
			}
		})
	}
}
