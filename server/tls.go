package server

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"os"
	"strings"
	"sync/atomic"
	"time"

	"google.golang.org/grpc/credentials"

	"github.com/pointsman-dev/pointsman/server/config"
)

// expiryWarning is how long before its end a certificate is warned of: two weeks
// leave time to find out why nobody renewed it.
const expiryWarning = 14 * 24 * time.Hour

// loadTLS reads a server's certificate and, for mutual TLS, the authorities that
// sign its callers' ones. Its errors name the file and the cause, never a key.
func loadTLS(c config.TLS) (*tls.Config, error) {
	pair, err := tls.LoadX509KeyPair(c.CertFile, c.KeyFile)
	if err != nil {
		return nil, fmt.Errorf("cert_file and key_file: %w", err)
	}
	out := &tls.Config{
		MinVersion:   tls.VersionTLS12, // what every gRPC library of the last ten years speaks
		Certificates: []tls.Certificate{pair},
		NextProtos:   []string{"h2"},
	}
	if c.ClientCAFile == "" {
		return out, nil
	}
	pem, err := os.ReadFile(c.ClientCAFile)
	if err != nil {
		return nil, fmt.Errorf("client_ca_file: %w", err)
	}
	out.ClientCAs = x509.NewCertPool()
	if !out.ClientCAs.AppendCertsFromPEM(pem) {
		return nil, fmt.Errorf("client_ca_file: %s holds no PEM certificate", c.ClientCAFile)
	}
	out.ClientAuth = tls.RequireAndVerifyClientCert
	return out, nil
}

// certificates serve the handshakes of a listener. Each handshake uses the newest;
// connections keep the one they were made with.
type certificates struct{ current atomic.Pointer[tls.Config] }

// credentials are for grpc-go.
func (c *certificates) credentials() credentials.TransportCredentials {
	return credentials.NewTLS(&tls.Config{
		MinVersion: tls.VersionTLS12,
		GetConfigForClient: func(*tls.ClientHelloInfo) (*tls.Config, error) {
			return c.current.Load(), nil
		},
	})
}

// warnOfExpiry says that a certificate has ended, or is about to.
func warnOfExpiry(c *tls.Config, now time.Time) []string {
	leaf := c.Certificates[0].Leaf
	switch {
	case now.After(leaf.NotAfter):
		return []string{"grpc.tls: the certificate ended on " + leaf.NotAfter.Format(time.DateOnly)}
	case now.Before(leaf.NotBefore):
		return []string{"grpc.tls: the certificate is not valid before " + leaf.NotBefore.Format(time.RFC3339)}
	case now.Add(expiryWarning).After(leaf.NotAfter):
		return []string{"grpc.tls: the certificate ends on " + leaf.NotAfter.Format(time.DateOnly)}
	}
	return nil
}

// warnOfReaders says that a file of secrets can be read by everybody on this host.
func warnOfReaders(key, path string) []string {
	info, err := os.Stat(path)
	if err != nil || info.Mode().Perm()&0o004 == 0 {
		return nil // a missing file is reported where it is read
	}
	return []string{fmt.Sprintf("%s: mode %#o lets every user read it; use 0600", key, info.Mode().Perm())}
}

// entrance is who may connect and call: what the configuration names in files.
type entrance struct {
	tls    *tls.Config // nil: plaintext
	tokens *tokens     // nil: anybody
	// openHealth lets health checks in without a token.
	openHealth bool
	warnings   []string
}

// loadEntrance reads the files of grpc.tls and grpc.auth. One that cannot be read
// is an error: never plaintext, or open to all, by accident.
func loadEntrance(c config.GRPC, now time.Time) (entrance, error) {
	var (
		out  entrance
		errs []error
		err  error
	)
	if c.TLS != nil {
		if out.tls, err = loadTLS(*c.TLS); err != nil {
			errs = append(errs, fmt.Errorf("grpc.tls: %w", err))
		} else {
			out.warnings = append(out.warnings, warnOfExpiry(out.tls, now)...)
			out.warnings = append(out.warnings, warnOfReaders("grpc.tls.key_file", c.TLS.KeyFile)...)
		}
	}
	if c.Auth != nil {
		out.openHealth = c.Auth.OpenHealth
		found, err := loadTokens(c.Auth.TokensFile)
		if err != nil {
			errs = append(errs, fmt.Errorf("grpc.auth.tokens_file: %s", strings.ReplaceAll(err.Error(), "\n", "; ")))
		} else {
			out.tokens = &found
			out.warnings = append(out.warnings, warnOfReaders("grpc.auth.tokens_file", c.Auth.TokensFile)...)
			if c.TLS == nil {
				out.warnings = append(out.warnings, "grpc.auth: tokens cross the network in the clear without grpc.tls")
			}
		}
	}
	return out, errors.Join(errs...)
}
