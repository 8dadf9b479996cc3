package main

import (
	"context"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/status"

	"github.com/pointsman-dev/pointsman/server/config"
)

// readinessService is the name under which the service's readiness is asked for.
const readinessService = "readiness"

type healthcheckCmd struct {
	Config      string          `required:"" placeholder:"FILE" help:"The configuration of the service, for its address."`
	Timeout     time.Duration   `default:"3s" help:"How long to wait for the answer (${default})."`
	Admin       bool            `help:"Ask the admin port's /readyz, which needs neither certificate nor token."`
	Credentials credentialFlags `embed:""`
}

func (c *healthcheckCmd) Run(ctx context.Context, std streams) error {
	cfg, err := config.Load(c.Config)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, c.Timeout)
	defer cancel()
	if c.Admin {
		err = checkReadyz(ctx, cfg.Admin.Listen)
	} else {
		err = c.checkGRPC(ctx, cfg.GRPC)
	}
	if err != nil {
		return fmt.Errorf("healthcheck: %w", err)
	}
	_, err = fmt.Fprintln(std.out, "ready")
	return err
}

func (c *healthcheckCmd) checkGRPC(ctx context.Context, cfg config.GRPC) error {
	address, err := dialAddress(cfg.Listen)
	if err != nil {
		return fmt.Errorf("grpc.listen %w", err)
	}
	flags := c.Credentials
	if cfg.TLS != nil {
		if flags, err = trustOwn(flags, cfg.TLS.CertFile); err != nil {
			return err
		}
	}
	conn, err := flags.dial(address)
	if err != nil {
		return err
	}
	defer func() { _ = conn.Close() }()
	if err := checkReady(ctx, conn); err != nil {
		return fmt.Errorf("%s: %w", address, err)
	}
	return nil
}

// trustOwn trusts the certificate that the configuration itself names, unless the
// flags say otherwise: this host's own service is asked, under a loopback address
// that no certificate carries.
func trustOwn(flags credentialFlags, certFile string) (credentialFlags, error) {
	flags.TLS = true
	if flags.CA == "" {
		flags.CA = certFile
	}
	if flags.ServerName != "" {
		return flags, nil
	}
	data, err := os.ReadFile(certFile)
	if err != nil {
		return flags, fmt.Errorf("grpc.tls.cert_file: %w", err)
	}
	block, _ := pem.Decode(data)
	if block == nil {
		return flags, errors.New("grpc.tls.cert_file: holds no PEM certificate")
	}
	leaf, err := x509.ParseCertificate(block.Bytes)
	switch {
	case err != nil:
		return flags, fmt.Errorf("grpc.tls.cert_file: %w", err)
	case len(leaf.DNSNames) > 0:
		flags.ServerName = leaf.DNSNames[0]
	case len(leaf.IPAddresses) > 0:
		flags.ServerName = leaf.IPAddresses[0].String()
	}
	return flags, nil
}

// checkReady asks the service at the other end whether it is ready.
func checkReady(ctx context.Context, conn grpc.ClientConnInterface) error {
	answer, err := healthpb.NewHealthClient(conn).Check(ctx, &healthpb.HealthCheckRequest{Service: readinessService})
	switch code := status.Code(err); {
	case code == codes.Unauthenticated:
		return errors.New("no answer: Unauthenticated (give --token-file, or --admin to ask the admin port)")
	case err != nil:
		return fmt.Errorf("no answer: %v", code)
	}
	if got := answer.GetStatus(); got != healthpb.HealthCheckResponse_SERVING {
		return fmt.Errorf("not ready: %v", got)
	}
	return nil
}

// checkReadyz asks the admin port.
func checkReadyz(ctx context.Context, listen string) error {
	address, err := dialAddress(listen)
	if err != nil {
		return fmt.Errorf("admin.listen %w", err)
	}
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+address+"/readyz", http.NoBody)
	if err != nil {
		return err
	}
	answer, err := http.DefaultTransport.RoundTrip(request)
	if err != nil {
		return fmt.Errorf("%s: no answer", address)
	}
	defer func() { _ = answer.Body.Close() }()
	if answer.StatusCode != http.StatusOK {
		return fmt.Errorf("%s: not ready: status %d", address, answer.StatusCode)
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
