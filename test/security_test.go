package test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/encoding"
	healthv1 "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/mem"
	"google.golang.org/grpc/metadata"
	reflectionv1 "google.golang.org/grpc/reflection/grpc_reflection_v1"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/durationpb"

	pointsmanv1 "github.com/pointsman-dev/pointsman/gen/go/pointsman/v1"
	"github.com/pointsman-dev/pointsman/server"
	"github.com/pointsman-dev/pointsman/server/config"
)

const (
	plainToken = "plain-0123456789abcdef0123456789"
	powerToken = "power-0123456789abcdef0123456789"
)

// reasonOf returns the ErrorInfo's reason.
func reasonOf(err error) string {
	for _, d := range status.Convert(err).Details() {
		if info, ok := d.(*errdetails.ErrorInfo); ok {
			return info.GetReason()
		}
	}
	return ""
}

func withToken(ctx context.Context, token string) context.Context {
	return metadata.AppendToOutgoingContext(ctx, "authorization", "Bearer "+token)
}

// writeTokens writes a tokens file with both tests' tokens, and returns its path.
func writeTokens(t *testing.T) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "tokens")
	text := fmt.Sprintf("plain %s\npower %s all\n", plainToken, powerToken)
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

func TestNobodyIsServedWithoutAToken(t *testing.T) {
	w := start(t, setup{grpcYAML: fmt.Sprintf("auth: { tokens_file: %q }", writeTokens(t))})
	for name, ctx := range map[string]context.Context{
		"none":  t.Context(),
		"wrong": withToken(t.Context(), plainToken+"x"),
	} {
		for what, err := range map[string]error{
			"Decide":     second(w.client.Decide(ctx, task("Whose turn?"))),
			"ListRoutes": second(w.client.ListRoutes(ctx, &pointsmanv1.ListRoutesRequest{})),
			"health":     second(healthv1.NewHealthClient(w.conn).Check(ctx, &healthv1.HealthCheckRequest{})),
			"reflection": firstOfStream(ctx, w),
			"nothing":    w.conn.Invoke(ctx, "/no.such.Service/Method", task(""), task("")),
		} {
			if status.Code(err) != codes.Unauthenticated {
				t.Errorf("%s token, %s: %v", name, what, err)
			}
		}
	}
	if _, err := w.client.Decide(t.Context(), task("Whose turn?")); reasonOf(err) != "UNAUTHENTICATED" {
		t.Errorf("reason %q of %v", reasonOf(err), err)
	}
	if n := w.sim.Stats().Requests; n != 0 {
		t.Errorf("strangers cost %d probes", n)
	}
	if _, err := w.client.Decide(withToken(t.Context(), plainToken), task("Mine.")); err != nil {
		t.Errorf("with a token: %v", err)
	}
	w.stop()
	if !strings.Contains(w.log.String(), `"caller":"plain"`) || strings.Contains(w.log.String(), plainToken) {
		t.Error("the log must name the caller and hold no token")
	}
}

func second[T any](_ T, err error) error { return err }

// firstOfStream asks reflection and returns its first error.
func firstOfStream(ctx context.Context, w *world) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	stream, err := reflectionv1.NewServerReflectionClient(w.conn).ServerReflectionInfo(ctx)
	if err != nil {
		return err
	}
	_, err = stream.Recv()
	return err
}

func TestOverridesNeedPermission(t *testing.T) {
	w := start(t, setup{grpcYAML: fmt.Sprintf("auth: { tokens_file: %q }\noverrides: { bypass: false }", writeTokens(t))})
	tests := []struct {
		name         string
		change       func(*pointsmanv1.DecideRequest)
		field        string
		nobodysRight bool
	}{
		{name: "none", change: func(*pointsmanv1.DecideRequest) {}},
		{name: "weight", field: "quality_weight", change: func(r *pointsmanv1.DecideRequest) {
			r.TradeOff = &pointsmanv1.DecideRequest_QualityWeight{QualityWeight: 0.7}
		}},
		{name: "tolerance", field: "tolerance", change: func(r *pointsmanv1.DecideRequest) {
			r.TradeOff = &pointsmanv1.DecideRequest_Tolerance{Tolerance: 0.1}
		}},
		{name: "refresh", field: "cache_policy", change: func(r *pointsmanv1.DecideRequest) {
			r.CachePolicy = pointsmanv1.CachePolicy_CACHE_POLICY_REFRESH
		}},
		{name: "max age", field: "max_age", change: func(r *pointsmanv1.DecideRequest) { r.MaxAge = durationpb.New(0) }},
		{name: "bypass", field: "cache_policy", nobodysRight: true, change: func(r *pointsmanv1.DecideRequest) {
			r.CachePolicy = pointsmanv1.CachePolicy_CACHE_POLICY_BYPASS
		}},
		{name: "only if cached", change: func(r *pointsmanv1.DecideRequest) {
			r.CachePolicy = pointsmanv1.CachePolicy_CACHE_POLICY_ONLY_IF_CACHED
		}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			req := task("May I?")
			tt.change(req)
			for token, allowed := range map[string]bool{plainToken: tt.field == "", powerToken: !tt.nobodysRight} {
				_, err := w.client.Decide(withToken(t.Context(), token), req)
				if allowed {
					if err != nil {
						t.Errorf("%.5s: %v", token, err)
					}
					continue
				}
				if status.Code(err) != codes.PermissionDenied || reasonOf(err) != "OVERRIDE_FORBIDDEN" || !strings.Contains(err.Error(), tt.field) {
					t.Errorf("%.5s: %v", token, err)
				}
			}
		})
	}
}

func TestTLS(t *testing.T) {
	ca := newAuthority(t, t.TempDir())
	ca.issue("server")
	ca.issue("gateway")
	stranger := newAuthority(t, t.TempDir())
	stranger.issue("gateway")
	plain := fmt.Sprintf("tls: { cert_file: %q, key_file: %q }", ca.file("server.pem"), ca.file("server.key"))
	mutual := fmt.Sprintf("tls: { cert_file: %q, key_file: %q, client_ca_file: %q }", ca.file("server.pem"), ca.file("server.key"), ca.file("ca.pem"))
	tests := []struct {
		name, yaml string
		setup      setup
		ok         bool
	}{
		{"TLS", plain, setup{creds: ca.client("")}, true},
		{"plaintext to TLS", plain, setup{}, false},
		{"another authority", plain, setup{creds: stranger.client("")}, false},
		{"mutual TLS", mutual, setup{creds: ca.client("gateway")}, true},
		{"mutual TLS without a certificate", mutual, setup{creds: ca.client("")}, false},
		{"mutual TLS with a stranger's", mutual, setup{creds: mixed(t, ca, stranger)}, false},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			tt.setup.grpcYAML = tt.yaml
			w := start(t, tt.setup)
			_, err := w.client.Decide(t.Context(), task("Who goes there?"))
			if (err == nil) != tt.ok {
				t.Errorf("%v", err)
			}
			if !tt.ok && w.sim.Stats().Requests != 0 {
				t.Error("it cost a probe")
			}
		})
	}
}

// TestAFileOfTheEntranceThatCannotBeReadStopsTheStart: never plaintext, or open to
// all, by accident.
func TestAFileOfTheEntranceThatCannotBeReadStopsTheStart(t *testing.T) {
	ca := newAuthority(t, t.TempDir())
	ca.issue("server")
	ca.issue("other")
	for name, yaml := range map[string]string{
		"no certificate": fmt.Sprintf("tls: { cert_file: missing.pem, key_file: %q }", ca.file("server.key")),
		"another's key":  fmt.Sprintf("tls: { cert_file: %q, key_file: %q }", ca.file("server.pem"), ca.file("other.key")),
		"no authority":   fmt.Sprintf("tls: { cert_file: %q, key_file: %q, client_ca_file: missing.pem }", ca.file("server.pem"), ca.file("server.key")),
		"a key for one":  fmt.Sprintf("tls: { cert_file: %q, key_file: %q, client_ca_file: %q }", ca.file("server.pem"), ca.file("server.key"), ca.file("server.key")),
		"no tokens":      "auth: { tokens_file: missing }",
	} {
		t.Run(name, func(t *testing.T) {
			root := t.TempDir()
			saveCheckpoint(t, filepath.Join(root, "router"), layers)
			text := fmt.Sprintf(`
grpc:
%s
routes:
  main:
    probe: p
    checkpoint: router
    targets:
      - { name: strong, model: s, head: strong, cost: 1 }
      - { name: weak, model: w, head: weak, cost: 0.25 }
probes:
  p: { encoder: %q, endpoints: [ { base_url: "http://127.0.0.1:1/v1", hidden_states_dir: %q } ] }
`, indent(yaml), encoder, root)
			cfg, err := config.Parse(filepath.Join(root, "pointsman.yaml"), []byte(text), config.LoadOptions{})
			if err != nil {
				t.Fatal(err)
			}
			s, err := server.New(cfg, discardLog())
			if err == nil {
				t.Error("it would start", s.Close(t.Context()))
			} else if !strings.Contains(err.Error(), "grpc.") {
				t.Errorf("%v", err)
			}
		})
	}
}

// garbled is a codec that sends what no protobuf message can be.
type garbled struct{ encoding.CodecV2 }

func (garbled) Marshal(any) (mem.BufferSlice, error) {
	return mem.BufferSlice{mem.SliceBuffer("\xff\xff\xff\xff no message")}, nil
}

func (garbled) Name() string { return "proto" }

func TestAMalformedMessageIsTheCallersMistake(t *testing.T) {
	w := start(t, setup{})
	codec := garbled{encoding.GetCodecV2("proto")}
	err := w.conn.Invoke(t.Context(), pointsmanv1.DecisionService_Decide_FullMethodName,
		task(""), &pointsmanv1.DecideResponse{}, grpc.ForceCodecV2(codec))
	if status.Code(err) != codes.InvalidArgument || reasonOf(err) != "MESSAGE_MALFORMED" {
		t.Errorf("%v", err)
	}
	invalid := w.conn.Invoke(t.Context(), pointsmanv1.DecisionService_Decide_FullMethodName,
		task(""), &pointsmanv1.DecideResponse{}, grpc.ForceCodecV2(fixed("\x12\x02\xff\xfe"))) // a task that is not UTF-8
	if status.Code(invalid) != codes.InvalidArgument || reasonOf(invalid) != "MESSAGE_MALFORMED" {
		t.Errorf("%v", invalid)
	}
	w.stop()
	if n := strings.Count(w.log.String(), `"code":"InvalidArgument"`); n != 2 {
		t.Errorf("%d lines in the access log, want 2:\n%s", n, w.log.String())
	}
}

// fixed is a codec that sends one text whatever it is given.
type fixed string

func (f fixed) Marshal(any) (mem.BufferSlice, error) {
	return mem.BufferSlice{mem.SliceBuffer(f)}, nil
}

func (fixed) Unmarshal(mem.BufferSlice, any) error { return nil }
func (fixed) Name() string                         { return "proto" }

func TestMaxMessage(t *testing.T) {
	w := start(t, setup{grpcYAML: "max_task_bytes: 1KiB\nmax_message_bytes: 66KiB"})
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	if _, err := w.client.Decide(ctx, task(strings.Repeat("x", 70<<10))); status.Code(err) != codes.ResourceExhausted {
		t.Errorf("%v", err)
	}
}
