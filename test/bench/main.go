package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"runtime/debug"
	"syscall"
	"time"

	"github.com/alecthomas/kong"
)

// cli is the command line.
type cli struct {
	Run   runCmd   `cmd:"" default:"withargs" help:"Measure (the default)."`
	Scale scaleCmd `cmd:"" help:"Simulate replicas, popularity and caches."`
	Child childCmd `cmd:"" hidden:""`
}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, syscall.SIGINT)
	defer stop()
	k := kong.Parse(&cli{}, kong.Description("Measures Pointsman on this machine."), kong.BindTo(ctx, (*context.Context)(nil)))
	k.FatalIfErrorf(k.Run())
}

// runCmd measures.
type runCmd struct {
	Quick      bool          `help:"Fewer and shorter rounds, small sizes: a look in under two minutes."`
	JSON       string        `name:"json" placeholder:"FILE" help:"Also write the results here (- is standard output, instead of the table)."`
	Only       []string      `enum:"reading,scoring,serving,computed,packages" default:"reading,scoring,serving,computed,packages" help:"What to measure: ${enum}."`
	Rounds     int           `default:"5" help:"How often what is compared takes turns."`
	Closed     time.Duration `default:"3s" help:"Length of one closed loop."`
	Open       time.Duration `default:"5s" help:"Length of one open loop."`
	Callers    int           `default:"50" help:"Callers of a closed loop."`
	Conns      int           `default:"4" help:"Connections they share."`
	TenMillion bool          `help:"Also measure a cache of ten million entries (about 10 GB of memory)."`
	Profile    string        `placeholder:"DIR" help:"Write CPU profiles of the servers here, one a closed loop."`
	Server     string        `placeholder:"FILE" help:"Another build of this program, to play Pointsman: so two versions are compared with one and the same echo and client."`
	Note       string        `help:"A remark on the circumstances, kept with the results."`
}

// generatorGC lets the load generator collect its garbage seldom: its pauses would count
// as the servers'.
const generatorGC = 400

// Run measures and prints.
func (c *runCmd) Run(ctx context.Context) (err error) {
	debug.SetGCPercent(generatorGC)
	if c.Quick {
		c.Rounds, c.Closed, c.Open = min(c.Rounds, 3), min(c.Closed, time.Second), min(c.Open, 2*time.Second)
	}
	b := &bench{runCmd: c, progress: os.Stderr}
	if b.dir, err = os.MkdirTemp("", "pointsman-bench-*"); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(b.dir)) }()
	if b.ram, err = os.MkdirTemp(ramDir(), "pointsman-bench-*"); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(b.ram)) }()

	found := &report{Machine: lookAtMachine(), Note: c.Note, Began: time.Now().UTC().Truncate(time.Second)}
	for _, part := range []struct {
		name    string
		measure func(context.Context, *report) error
	}{
		{"reading", b.reading},
		{"scoring", b.scoring},
		{"serving", b.serving},
		{"computed", b.computed},
		{"packages", b.packages},
	} {
		if !contains(c.Only, part.name) {
			continue
		}
		b.sayf("%s:", part.name)
		if err := part.measure(ctx, found); err != nil {
			return fmt.Errorf("%s: %w", part.name, err)
		}
	}
	found.Took = time.Since(found.Began).Round(time.Second)
	return c.write(found)
}

func (c *runCmd) write(r *report) error {
	if c.JSON == "-" {
		return r.json(os.Stdout)
	}
	if err := r.table(os.Stdout); err != nil || c.JSON == "" {
		return err
	}
	file, err := os.Create(c.JSON)
	if err != nil {
		return err
	}
	return errors.Join(r.json(file), file.Close())
}

// bench is one run under way.
type bench struct {
	*runCmd

	dir      string // on disk
	ram      string // in memory, where the machine has such a folder
	progress io.Writer
}

// sayf tells how the run is getting on.
func (b *bench) sayf(format string, args ...any) {
	_, _ = fmt.Fprintf(b.progress, format+"\n", args...)
}
