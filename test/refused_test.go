package test

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"testing"
	"time"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	pointsmanv1 "github.com/pointsman-dev/pointsman/gen/go/pointsman/v1"
)

// importune sends calls without a token, each with the longest time-out that there is,
// until the connection is closed or they are all sent. It returns how many were sent,
// and whether the server closed the connection.
func importune(t *testing.T, addr string, calls int) (sent int, closed bool) {
	t.Helper()
	conn, err := new(net.Dialer).DialContext(t.Context(), "tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if err := conn.SetDeadline(time.Now().Add(20 * time.Second)); err != nil {
		t.Fatal(err)
	}
	_, _ = io.WriteString(conn, http2.ClientPreface)
	frames := http2.NewFramer(conn, nil)
	_ = frames.WriteSettings()
	var block bytes.Buffer
	headers := hpack.NewEncoder(&block)
	headers.SetMaxDynamicTableSizeLimit(0) // each block the same
	for _, h := range [][2]string{
		{":method", "POST"},
		{":scheme", "http"},
		{":path", pointsmanv1.DecisionService_Decide_FullMethodName},
		{":authority", "x"},
		{"content-type", "application/grpc"},
		{"te", "trailers"},
		{"grpc-timeout", "99999999H"},
	} {
		if err := headers.WriteField(hpack.HeaderField{Name: h[0], Value: h[1]}); err != nil {
			t.Fatal(err)
		}
	}
	answers := make(chan error, 1)
	go func() {
		_, err := io.Copy(io.Discard, conn)
		answers <- err
	}()
	for ; sent < calls; sent++ {
		err := frames.WriteHeaders(http2.HeadersFrameParam{StreamID: uint32(2*sent + 1), BlockFragment: block.Bytes(), EndStream: true, EndHeaders: true})
		if err != nil {
			break
		}
	}
	select {
	case err := <-answers:
		return sent, !errors.Is(err, os.ErrDeadlineExceeded)
	case <-time.After(time.Second):
		_ = conn.Close()
		<-answers
		return sent, false
	}
}

// TestAStrangerWhoGoesOnAskingIsShownOut: calls that are refused are few a connection,
// unless somebody with a token uses it too.
func TestAStrangerWhoGoesOnAskingIsShownOut(t *testing.T) {
	w := start(t, setup{grpcYAML: fmt.Sprintf("auth: { tokens_file: %q }", writeTokens(t))})
	if sent, closed := importune(t, w.addr, 10); closed || sent != 10 {
		t.Errorf("closed after %d calls: %v", sent, closed)
	}
	if sent, closed := importune(t, w.addr, 1000); !closed {
		t.Errorf("not closed after %d calls", sent)
	}
	friend := withToken(t.Context(), plainToken)
	if _, err := w.client.Decide(friend, task("a friend")); err != nil {
		t.Fatal(err)
	}
	for i := range 200 {
		if _, err := w.client.Decide(t.Context(), task("a stranger")); status.Code(err) != codes.Unauthenticated {
			t.Fatalf("call %d on a friend's connection: %v", i, err)
		}
	}
	if _, err := w.client.Decide(friend, task("a friend")); err != nil {
		t.Error(err)
	}
}
