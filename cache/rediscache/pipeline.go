package rediscache

import (
	"context"
	"errors"

	"github.com/redis/go-redis/v9"
)

// pipeline carries the exchanges that answers wait for. Those that arrive while others are under way go together, in one write and one
// read for all: at thousands of shared hits a second most of an exchange's cost is its system calls. With nothing under way an exchange
// goes at once. There is one connection a server; if it stalls, all exchanges on it fail, each in its own time, and within
// [backgroundTimeout] it is given up.
//
// The client library calls its auto-pipelining experimental, which is why this file is the only one to know of it.
type pipeline struct{ auto *redis.AutoPipeliner }

// maxQueued bounds the exchanges that are queued, most of which nobody waits for any more: about a kilobyte each, and more than are
// sent within a caller's limit.
const maxQueued = 4096

// newPipeline makes a pipeline that the client closes.
func newPipeline(client redis.UniversalClient) (*pipeline, error) {
	o := redis.DefaultAutoPipelineOptions()
	o.MaxQueuedCommands = maxQueued
	auto, err := client.AsyncAutoPipelineWithOptions(o)
	if err != nil {
		return nil, err
	}
	return &pipeline{auto}, nil
}

// await has the command carried out, and waits for that no longer than ctx: what is sent after that counts for nothing, and the command
// must not be looked at.
func (p *pipeline) await(ctx context.Context, cmd redis.Cmder) error {
	err := p.auto.Submit(ctx, cmd).WaitContext(ctx)
	switch {
	case errors.Is(err, redis.ErrAutoPipelineQueueFull):
		return errQueueFull
	case errors.Is(err, redis.ErrAutoPipelineTimeout):
		return ErrTimeout
	}
	return err
}

// errQueueFull is the error of an exchange that was not sent because too many are queued.
var errQueueFull = errors.New("too many exchanges are queued")

// read returns the bytes of a key, and one byte more than a value may have of what is too large. The bytes of a key that is not there
// are none.
func (p *pipeline) read(ctx context.Context, key string) ([]byte, error) {
	cmd := redis.NewStringCmd(ctx, "getrange", key, 0, maxValue)
	if err := p.await(ctx, cmd); err != nil {
		return nil, err
	}
	return cmd.Bytes()
}

// run runs a script on two keys of one slot. Its text is sent only to a server that does not know it yet.
func (p *pipeline) run(ctx context.Context, source, hash, key, other string, args []any) (any, error) {
	reply, err := p.eval(ctx, "evalsha", hash, key, other, args)
	if redis.HasErrorPrefix(err, "NOSCRIPT") {
		return p.eval(ctx, "eval", source, key, other, args)
	}
	return reply, err
}

// firstKey is where in an EVAL the first key stands, by which Cluster is routed.
const firstKey = 3

func (p *pipeline) eval(ctx context.Context, how, script, key, other string, args []any) (any, error) {
	cmd := redis.NewCmd(ctx, append([]any{how, script, 2, key, other}, args...)...)
	cmd.SetFirstKeyPos(firstKey)
	if err := p.await(ctx, cmd); err != nil {
		return nil, err
	}
	return cmd.Val(), nil
}
