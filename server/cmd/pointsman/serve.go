package main

import (
	"context"

	"github.com/pointsman-dev/pointsman/server"
)

type serveCmd struct {
	Config string `required:"" placeholder:"FILE" help:"The configuration file."`
}

func (c *serveCmd) Run(ctx context.Context, std streams) error {
	return server.Serve(ctx, c.Config, std.err, server.WithVersion(version))
}

type checkCmd struct {
	Config  string `required:"" placeholder:"FILE" help:"The configuration file."`
	Offline bool   `help:"Send nothing to the probes."`
	JSON    bool   `help:"Print the report as JSON."`
}

func (c *checkCmd) Run(ctx context.Context, std streams) error {
	code, err := server.Check(ctx, server.CheckOptions{ConfigPath: c.Config, Offline: c.Offline, JSON: c.JSON}, std.out)
	if err == nil && code != 0 {
		return exitError(code)
	}
	return err
}

type demoCmd struct {
	Listen string `default:"127.0.0.1:50051" placeholder:"ADDRESS" help:"Where gRPC listens (${default})."`
	Admin  string `default:"127.0.0.1:9464" placeholder:"ADDRESS" help:"Where the admin port listens (${default})."`
}

func (c *demoCmd) Run(ctx context.Context, std streams) error {
	return server.Demo(ctx, server.DemoOptions{Listen: c.Listen, Admin: c.Admin}, std.out, std.err)
}
