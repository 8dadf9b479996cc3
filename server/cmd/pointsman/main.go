// Command pointsman runs the service, checks a configuration, and asks a running
// service for decisions. What a command does lives in package server; here are
// the flags, the signals, the exit codes, and the small clients decide and
// healthcheck.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"

	"github.com/alecthomas/kong"
)

// version is set by the linker: -ldflags "-X main.version=v1.2.3".
var version string

// Exit codes besides those that check defines.
const (
	exitFailed = 1
	exitUsage  = 64 // EX_USAGE of sysexits.h, apart from what a command itself may return
)

// cli is the command line.
type cli struct {
	Serve       serveCmd       `cmd:"" help:"Run the service. SIGTERM or SIGINT drains it; a second one ends it at once."`
	Check       checkCmd       `cmd:"" help:"Build everything that serve would, and send one prompt through each probe."`
	Demo        demoCmd        `cmd:"" help:"Run a service with a stand-in for vLLM: no GPU, no Redis, no files."`
	Decide      decideCmd      `cmd:"" help:"Ask a running service for a decision."`
	Healthcheck healthcheckCmd `cmd:"" help:"Exit 0 if the service of this configuration is ready (for containers)."`
	Extract     extractCmd     `cmd:"" help:"Put judged examples through a probe and keep their features, for train."`
	Train       trainCmd       `cmd:"" help:"Make a checkpoint from judged examples and their features."`
	Calibrate   calibrateCmd   `cmd:"" help:"Find the trade-off for a strong share, a quality or a saving."`
	Evaluate    evaluateCmd    `cmd:"" help:"Measure checkpoints on judged examples, or replay a decision record."`
	Version     versionCmd     `cmd:"" help:"Print version, commit and Go version."`
}

// streams are the standard streams of a command.
type streams struct {
	in       io.Reader
	out, err io.Writer
}

// exitError ends the program with a code and says nothing: the command has
// already printed what there is to say.
type exitError int

func (e exitError) Error() string { return fmt.Sprintf("exit code %d", int(e)) }

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, syscall.SIGINT)
	// Once the first signal has come, the next one has its usual effect.
	context.AfterFunc(ctx, stop)
	code := run(ctx, os.Args[1:], streams{os.Stdin, os.Stdout, os.Stderr})
	stop()
	os.Exit(code)
}

// run parses the command line, runs its command and returns the exit code.
func run(ctx context.Context, args []string, std streams) int {
	var commands cli
	parser, err := kong.New(&commands,
		kong.Name("pointsman"),
		kong.Description("Does this task need the strong model, or will the weak one do?"),
		kong.Writers(std.out, std.err),
		kong.BindFor(ctx),
		kong.Bind(std),
	)
	if err != nil {
		return report(std.err, err)
	}
	command, err := parser.Parse(args)
	if err != nil {
		_, _ = fmt.Fprintf(std.err, "pointsman: %v\nTry: pointsman --help\n", err)
		return exitUsage
	}
	return report(std.err, command.Run())
}

// report prints what a command failed with and returns the exit code.
func report(w io.Writer, err error) int {
	if err == nil {
		return 0
	}
	if code, ok := errors.AsType[exitError](err); ok {
		return int(code)
	}
	_, _ = fmt.Fprintf(w, "pointsman: %v\n", err)
	return exitFailed
}
