package prometheus

import (
	"bufio"
	"context"
	"errors"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/model/textparse"
)

// TestPrometheusReadsMetrics scrapes a running service in both of the formats that
// Prometheus asks for, and reads the answers as Prometheus does.
func TestPrometheusReadsMetrics(t *testing.T) {
	url := demo(t)
	for _, accept := range []string{
		"application/openmetrics-text;version=1.0.0",
		"text/plain;version=0.0.4",
	} {
		t.Run(accept, func(t *testing.T) {
			content, contentType := scrape(t, url, accept)
			if !strings.HasPrefix(contentType, strings.Split(accept, ";")[0]) {
				t.Errorf("content type %q", contentType)
			}
			p, err := textparse.New(content, contentType, labels.NewSymbolTable(), textparse.ParserOptions{})
			if err != nil {
				t.Fatal(err)
			}
			seen := map[string]bool{}
			for {
				entry, err := p.Next()
				if errors.Is(err, io.EOF) {
					break
				}
				if err != nil {
					t.Fatalf("%v in\n%s", err, content)
				}
				if entry == textparse.EntrySeries {
					var l labels.Labels
					p.Labels(&l)
					seen[l.Get(labels.MetricName)] = true
				}
			}
			for _, name := range []string{"pointsman_decisions_total", "pointsman_decision_duration_seconds_bucket", "pointsman_probe_state"} {
				if !seen[name] {
					t.Errorf("%s is not there", name)
				}
			}
		})
	}
}

// demo runs the demo until the test ends, asks it something, and returns the URL of
// its admin port.
func demo(t *testing.T) string {
	t.Helper()
	binary := filepath.Join(t.TempDir(), "pointsman")
	build := exec.CommandContext(t.Context(), "go", "build", "-o", binary, "./server/cmd/pointsman")
	build.Dir = "../.."
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	ctx, cancel := context.WithCancel(context.Background())
	cmd := exec.CommandContext(ctx, binary, "demo", "--listen", "127.0.0.1:0", "--admin", "127.0.0.1:0")
	cmd.Cancel = func() error { return cmd.Process.Signal(os.Interrupt) }
	cmd.WaitDelay = 10 * time.Second
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		cancel()
		_ = cmd.Wait() // it was interrupted
	})
	addresses := regexp.MustCompile(`^gRPC\s+(\S+)\s+admin\s+(http://\S+)/readyz`)
	for lines := bufio.NewScanner(out); lines.Scan(); {
		match := addresses.FindStringSubmatch(lines.Text())
		if match == nil {
			continue
		}
		ask := exec.CommandContext(t.Context(), binary, "decide", "--addr", match[1], "What is 2+2?")
		if answer, err := ask.CombinedOutput(); err != nil {
			t.Fatalf("%v\n%s", err, answer)
		}
		return match[2]
	}
	t.Fatal("the demo did not say where it listens")
	return ""
}

func scrape(t *testing.T, url, accept string) (content []byte, contentType string) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url+"/metrics", nil)
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Accept", accept)
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if content, err = io.ReadAll(resp.Body); err != nil {
		t.Fatal(err)
	}
	return content, resp.Header.Get("Content-Type")
}
