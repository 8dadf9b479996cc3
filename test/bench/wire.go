package main

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"sync"
	"time"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"
	"google.golang.org/protobuf/proto"

	pointsmanv1 "github.com/pointsman-dev/pointsman/gen/go/pointsman/v1"
)

// wireClient makes calls of Decide with as little as HTTP/2 allows: what grpc-go's
// client takes for a call sent alone is more than the server takes to answer it, so that
// with both on one machine an open loop would measure its own client. It sends the same
// frames, looks at every status, and at one answer in [answerSample].
type wireClient struct {
	conns []*wireConn
	tasks [][]byte // DecideRequests, with gRPC's prefix
}

const (
	// answerSample is of how many answers one is decoded. It shares no factor with the
	// numbers of connections and tasks that are in use.
	answerSample = 13
	// maxUint31 is the largest flow-control window.
	maxUint31 = 1<<31 - 1
	// grpcPrefix is how long what gRPC puts before a message is.
	grpcPrefix = 5
)

var (
	errWire     = errors.New("the server broke the protocol, or this client does not know enough of it")
	errRefused  = errors.New("the server refused a call")
	errTooSlow  = errors.New("the calls pile up: the rate is above what the server can do")
	errNoAnswer = errors.New("calls without an answer")
)

// dialWire connects n times.
func dialWire(ctx context.Context, addr string, n int, prompts []string, look func(*pointsmanv1.DecideResponse)) (*wireClient, error) {
	c := &wireClient{}
	for _, prompt := range prompts {
		message, err := proto.Marshal(&pointsmanv1.DecideRequest{Input: &pointsmanv1.DecideRequest_Task{Task: prompt}})
		if err != nil {
			return nil, err
		}
		task := binary.BigEndian.AppendUint32([]byte{0}, uint32(len(message)))
		c.tasks = append(c.tasks, append(task, message...))
	}
	for range n {
		conn, err := dialWireConn(ctx, addr, look)
		if err != nil {
			return nil, errors.Join(err, c.close())
		}
		c.conns = append(c.conns, conn)
	}
	return c, nil
}

// send implements [sender].
func (c *wireClient) send(i int, due time.Time) error {
	return c.conns[i%len(c.conns)].send(c.tasks[i%len(c.tasks)], due)
}

// flush implements [sender].
func (c *wireClient) flush() error {
	for _, conn := range c.conns {
		if err := conn.flush(); err != nil {
			return err
		}
	}
	return nil
}

// wait implements [sender].
func (c *wireClient) wait(ctx context.Context) (*histogram, error) {
	all := &histogram{}
	for _, conn := range c.conns {
		if err := conn.wait(ctx); err != nil {
			return nil, err
		}
		all.merge(&conn.latencies)
	}
	return all, nil
}

// close closes the connections.
func (c *wireClient) close() error {
	errs := make([]error, 0, len(c.conns))
	for _, conn := range c.conns {
		errs = append(errs, conn.conn.Close())
		<-conn.ended
	}
	return errors.Join(errs...)
}

// wireConn is one connection. One goroutine sends, another reads.
type wireConn struct {
	conn  net.Conn
	look  func(*pointsmanv1.DecideResponse)
	ended chan struct{} // closed when the reading has

	mu       sync.Mutex
	out      bytes.Buffer // not yet written
	frames   *http2.Framer
	encoder  *hpack.Encoder
	block    bytes.Buffer // what encoder makes
	window   int64        // how many bytes the server takes
	due      []time.Time  // of every call so far, by the order of their streams
	answered int
	failed   error
	changed  chan struct{} // receives when a call is answered, the window grows, or all is over

	latencies histogram // of the reading goroutine, until it has answered all
}

func dialWireConn(ctx context.Context, addr string, look func(*pointsmanv1.DecideResponse)) (*wireConn, error) {
	var dialer net.Dialer
	conn, err := dialer.DialContext(ctx, "tcp", addr)
	if err != nil {
		return nil, err
	}
	const initialWindow = 65535 // RFC 9113, section 6.9.2
	w := &wireConn{
		conn: conn, look: look, window: initialWindow,
		ended: make(chan struct{}), changed: make(chan struct{}, 1),
	}
	w.frames = http2.NewFramer(&w.out, conn)
	w.frames.SetReuseFrames()
	w.encoder = hpack.NewEncoder(&w.block)
	w.out.WriteString(http2.ClientPreface)
	err = errors.Join(
		w.frames.WriteSettings(http2.Setting{ID: http2.SettingInitialWindowSize, Val: maxUint31}),
		w.frames.WriteWindowUpdate(0, maxUint31-initialWindow), // more than a run receives
		w.flush(),
	)
	if err != nil {
		return nil, errors.Join(err, conn.Close())
	}
	go func() {
		defer close(w.ended)
		w.end(w.read())
	}()
	return w, nil
}

// send puts a call among what flush writes.
func (w *wireConn) send(task []byte, due time.Time) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	for w.window < int64(len(task)) && w.failed == nil {
		if err := w.flushLocked(); err != nil {
			return err
		}
		w.mu.Unlock()
		<-w.changed
		w.mu.Lock()
	}
	if w.failed != nil {
		return w.failed
	}
	if len(w.due)-w.answered > maxOutstanding {
		return errTooSlow
	}
	w.window -= int64(len(task))
	w.due = append(w.due, due)
	w.block.Reset()
	for _, field := range []hpack.HeaderField{
		{Name: ":method", Value: "POST"},
		{Name: ":scheme", Value: "http"},
		{Name: ":path", Value: pointsmanv1.DecisionService_Decide_FullMethodName},
		{Name: ":authority", Value: w.conn.RemoteAddr().String()},
		{Name: "content-type", Value: "application/grpc"},
		{Name: "user-agent", Value: "pointsman-bench"},
		{Name: "te", Value: "trailers"},
		{Name: "grpc-timeout", Value: "20S"},
	} {
		if err := w.encoder.WriteField(field); err != nil {
			return err
		}
	}
	stream := streamOf(len(w.due) - 1)
	if err := w.frames.WriteHeaders(http2.HeadersFrameParam{
		StreamID: stream, BlockFragment: w.block.Bytes(), EndHeaders: true,
	}); err != nil {
		return err
	}
	return w.frames.WriteData(stream, true, task)
}

// streamOf returns the stream of the i-th call of a connection; callOn is the reverse.
func streamOf(i int) uint32 { return uint32(2*i + 1) }
func callOn(s uint32) int   { return int(s-1) / 2 }

func (w *wireConn) flush() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.flushLocked()
}

func (w *wireConn) flushLocked() error {
	if w.out.Len() == 0 {
		return nil
	}
	_, err := w.out.WriteTo(w.conn)
	return err
}

// wait waits until every call is answered.
func (w *wireConn) wait(ctx context.Context) error {
	for {
		w.mu.Lock()
		left, failed := len(w.due)-w.answered, w.failed
		w.mu.Unlock()
		if failed != nil || left == 0 {
			return failed
		}
		select {
		case <-w.changed:
		case <-ctx.Done():
			return fmt.Errorf("%w: %d: %w", errNoAnswer, left, context.Cause(ctx))
		}
	}
}

// end notes why the connection is of no more use.
func (w *wireConn) end(err error) {
	w.mu.Lock()
	w.failed = err
	w.mu.Unlock()
	w.wake()
}

func (w *wireConn) wake() {
	select {
	case w.changed <- struct{}{}:
	default: // it will look anyway
	}
}

// read takes what the server sends. It returns why it cannot go on.
func (w *wireConn) read() error {
	var (
		reader  = answerReader{look: w.look}
		decoder = hpack.NewDecoder(4096, reader.field) // the table that SETTINGS begin with
	)
	for {
		frame, err := w.frames.ReadFrame()
		if err != nil {
			return err
		}
		switch f := frame.(type) {
		case *http2.HeadersFrame:
			if !f.HeadersEnded() {
				return fmt.Errorf("%w: headers in several frames", errWire)
			}
			if _, err := decoder.Write(f.HeaderBlockFragment()); err != nil {
				return err
			}
			if err := decoder.Close(); err != nil {
				return err
			}
			if f.StreamEnded() {
				if err := reader.ended(); err != nil {
					return err
				}
				w.done(callOn(f.StreamID))
			}
		case *http2.DataFrame:
			if err := reader.data(callOn(f.StreamID), f.Data()); err != nil {
				return err
			}
		case *http2.RSTStreamFrame:
			return fmt.Errorf("%w: %v", errRefused, f.ErrCode)
		case *http2.GoAwayFrame:
			return fmt.Errorf("%w: it goes away: %v", errRefused, f.ErrCode)
		default:
			if err := w.control(frame); err != nil {
				return err
			}
		}
	}
}

// control answers the frames that are about the connection.
func (w *wireConn) control(frame http2.Frame) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	switch f := frame.(type) {
	case *http2.SettingsFrame:
		if f.IsAck() {
			return nil
		}
		// Messages are far smaller than a stream's least window.
		if size, ok := f.Value(http2.SettingHeaderTableSize); ok {
			w.encoder.SetMaxDynamicTableSizeLimit(size)
		}
		return errors.Join(w.frames.WriteSettingsAck(), w.flushLocked())
	case *http2.PingFrame:
		if f.IsAck() {
			return nil
		}
		return errors.Join(w.frames.WritePing(true, f.Data), w.flushLocked())
	case *http2.WindowUpdateFrame:
		if f.StreamID == 0 {
			w.window += int64(f.Increment)
			w.wake()
		}
	}
	return nil
}

// done notes the time of an answer.
func (w *wireConn) done(call int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.latencies.add(time.Since(w.due[call]))
	if w.answered++; w.answered == len(w.due) {
		w.wake()
	}
}

// answerReader checks the answers, each of which comes in one frame, trailers behind it.
type answerReader struct {
	look     func(*pointsmanv1.DecideResponse)
	status   string // grpc-status of the last trailers
	messages int    // whose trailers are still to come
}

func (r *answerReader) field(f hpack.HeaderField) {
	if f.Name == "grpc-status" {
		r.status = f.Value
	}
}

func (r *answerReader) data(call int, data []byte) error {
	r.messages++
	if call%answerSample != 0 || r.look == nil {
		return nil
	}
	if len(data) < grpcPrefix || int(binary.BigEndian.Uint32(data[1:])) != len(data)-grpcPrefix {
		return fmt.Errorf("%w: an answer in several frames", errWire)
	}
	answer := &pointsmanv1.DecideResponse{}
	if err := proto.Unmarshal(data[grpcPrefix:], answer); err != nil {
		return err
	}
	r.look(answer)
	return nil
}

func (r *answerReader) ended() error {
	if r.messages--; r.status != "0" || r.messages < 0 {
		return fmt.Errorf("%w: grpc-status %q", errRefused, r.status)
	}
	r.status = ""
	return nil
}
