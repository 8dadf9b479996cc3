package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/status"

	"github.com/pointsman-dev/pointsman/server/config"
)

// readinessService is the name under which the service's readiness is asked for.
const readinessService = "readiness"

type healthcheckCmd struct {
	Config  string        `required:"" placeholder:"FILE" help:"The configuration of the service, for its address."`
	Timeout time.Duration `default:"3s" help:"How long to wait for the answer (${default})."`
}

func (c *healthcheckCmd) Run(ctx context.Context, std streams) error {
	cfg, err := config.Load(c.Config)
	if err != nil {
		return err
	}
	address, err := dialAddress(cfg.GRPC.Listen)
	if err != nil {
		return fmt.Errorf("healthcheck: grpc.listen %w", err)
	}
	if err := checkReady(ctx, address, c.Timeout); err != nil {
		return fmt.Errorf("healthcheck: %s: %w", address, err)
	}
	_, err = fmt.Fprintln(std.out, "ready")
	return err
}

// checkReady asks the service at address whether it is ready.
func checkReady(ctx context.Context, address string, timeout time.Duration) error {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	conn, err := grpc.NewClient(address, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		return err
	}
	defer func() { _ = conn.Close() }()
	answer, err := healthpb.NewHealthClient(conn).Check(ctx, &healthpb.HealthCheckRequest{Service: readinessService})
	if err != nil {
		return fmt.Errorf("no answer: %v", status.Convert(err).Code())
	}
	if got := answer.GetStatus(); got != healthpb.HealthCheckResponse_SERVING {
		return fmt.Errorf("not ready: %v", got)
	}
	return nil
}

// dialAddress turns a listening address into one to connect to on this host.
func dialAddress(listen string) (string, error) {
	host, port, err := net.SplitHostPort(listen)
	if err != nil {
		return "", err
	}
	if port == "0" {
		return "", errors.New("has port 0: the port it was given is not known; give it a fixed one")
	}
	switch host {
	case "", "0.0.0.0":
		host = "127.0.0.1"
	case "::":
		host = "::1"
	}
	return net.JoinHostPort(host, port), nil
}
