package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"time"
	"unicode/utf8"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/encoding/protojson"

	pointsmanv1 "github.com/pointsman-dev/pointsman/gen/go/pointsman/v1"
)

type decideCmd struct {
	Addr          string          `default:"127.0.0.1:50051" placeholder:"ADDRESS" help:"The service (${default})."`
	Route         string          `help:"The route; the service's default if left out."`
	QualityWeight *float64        `xor:"trade-off" placeholder:"W" help:"Weight of quality against cost, 0 to 1, in place of the route's own."`
	Tolerance     *float64        `xor:"trade-off" placeholder:"T" help:"How much probability of a right answer a cheaper target may cost, 0 to 1."`
	Conversation  string          `placeholder:"FILE" help:"A chat in OpenAI's form: an object with messages, or the list of them. - reads standard input."`
	Deadline      time.Duration   `default:"10s" help:"How long to wait; the service answers before (${default})."`
	JSON          bool            `help:"Print the whole answer as JSON."`
	Credentials   credentialFlags `embed:""`
	Task          *string         `arg:"" optional:"" help:"The task. - reads standard input."`
}

func (c *decideCmd) Run(ctx context.Context, std streams) error {
	request, err := c.request(std.in)
	if err != nil {
		return fmt.Errorf("decide: %w", err)
	}
	response, err := c.call(ctx, request)
	if err != nil {
		return fmt.Errorf("decide: %w", err)
	}
	if c.JSON {
		out, err := protojson.MarshalOptions{Multiline: true, Indent: "  ", EmitUnpopulated: false}.Marshal(response)
		if err != nil {
			return fmt.Errorf("decide: %w", err)
		}
		_, err = fmt.Fprintf(std.out, "%s\n", out)
		return err
	}
	return printDecision(std.out, response)
}

// request builds the message from the flags.
func (c *decideCmd) request(stdin io.Reader) (*pointsmanv1.DecideRequest, error) {
	request := &pointsmanv1.DecideRequest{Route: c.Route}
	switch {
	case c.QualityWeight != nil:
		request.TradeOff = &pointsmanv1.DecideRequest_QualityWeight{QualityWeight: *c.QualityWeight}
	case c.Tolerance != nil:
		request.TradeOff = &pointsmanv1.DecideRequest_Tolerance{Tolerance: *c.Tolerance}
	}
	switch {
	case c.Conversation != "" && c.Task != nil:
		return nil, errors.New("there is both a TASK and --conversation: give one of them")
	case c.Conversation != "":
		data, err := readInput(c.Conversation, stdin)
		if err != nil {
			return nil, fmt.Errorf("read the conversation: %w", err)
		}
		conversation, err := parseConversation(data)
		if err != nil {
			return nil, fmt.Errorf("the conversation %w", err)
		}
		request.Input = &pointsmanv1.DecideRequest_Conversation{Conversation: conversation}
	case c.Task != nil: // an empty one is sent too: the service has an answer to it
		task := *c.Task
		if task == "-" {
			data, err := io.ReadAll(stdin)
			if err != nil {
				return nil, fmt.Errorf("read the task: %w", err)
			}
			task = string(data)
		}
		if !utf8.ValidString(task) {
			return nil, errors.New("the task is not valid UTF-8")
		}
		request.Input = &pointsmanv1.DecideRequest_Task{Task: task}
	default:
		return nil, errors.New("nothing to decide on: give a TASK, - for standard input, or --conversation FILE")
	}
	return request, nil
}

// readInput reads a file, or standard input for "-".
func readInput(name string, stdin io.Reader) ([]byte, error) {
	if name == "-" {
		return io.ReadAll(stdin)
	}
	return os.ReadFile(name)
}

func (c *decideCmd) call(ctx context.Context, request *pointsmanv1.DecideRequest) (*pointsmanv1.DecideResponse, error) {
	ctx, cancel := context.WithTimeout(ctx, c.Deadline)
	defer cancel()
	conn, err := c.Credentials.dial(c.Addr)
	if err != nil {
		return nil, err
	}
	defer func() { _ = conn.Close() }()
	response, err := pointsmanv1.NewDecisionServiceClient(conn).Decide(ctx, request)
	if err != nil {
		return nil, explain(err)
	}
	return response, nil
}

// explain adds the machine-readable part of a gRPC error to its text.
func explain(err error) error {
	s := status.Convert(err)
	var text strings.Builder
	fmt.Fprintf(&text, "%v: %s", s.Code(), printable(s.Message()))
	for _, detail := range s.Details() {
		switch d := detail.(type) {
		case *errdetails.ErrorInfo:
			fmt.Fprintf(&text, " [%s]", printable(d.GetReason()))
		case *errdetails.BadRequest:
			for _, v := range d.GetFieldViolations() {
				if said := v.GetField() + ": " + v.GetDescription(); said != s.Message() {
					fmt.Fprintf(&text, "\n  %s", printable(said))
				}
			}
		}
	}
	return errors.New(text.String())
}

// printable replaces what could steer a terminal.
func printable(s string) string {
	return strings.Map(func(r rune) rune {
		if r < ' ' || (r >= 0x7f && r < 0xa0) {
			return '?'
		}
		return r
	}, s)
}
