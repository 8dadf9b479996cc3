package main

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"os"
	"strings"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
)

// credentialFlags say how a client proves who it is, and whom it trusts.
type credentialFlags struct {
	TLS        bool   `name:"tls" help:"Use TLS. Implied by the flags below."`
	CA         string `name:"ca" placeholder:"FILE" help:"PEM file with the authorities to trust; the system's if left out."`
	Cert       string `placeholder:"FILE" help:"PEM file with the certificate to present, for mutual TLS; with --key."`
	Key        string `placeholder:"FILE" help:"PEM file with its private key; with --cert."`
	ServerName string `placeholder:"NAME" help:"The name that the service's certificate must carry; the address's host if left out."`
	TokenFile  string `placeholder:"FILE" help:"File that holds the bearer token alone."`
	TokenEnv   string `placeholder:"NAME" help:"Environment variable that holds the bearer token."`
}

// secure says whether TLS is wanted.
func (f credentialFlags) secure() bool {
	return f.TLS || f.CA != "" || f.Cert != "" || f.Key != "" || f.ServerName != ""
}

// dial prepares a connection.
func (f credentialFlags) dial(address string) (*grpc.ClientConn, error) {
	opts := []grpc.DialOption{grpc.WithTransportCredentials(insecure.NewCredentials())}
	if f.secure() {
		cfg, err := f.tlsConfig()
		if err != nil {
			return nil, err
		}
		opts[0] = grpc.WithTransportCredentials(credentials.NewTLS(cfg))
	}
	token, err := f.token()
	if err != nil {
		return nil, err
	}
	if token != "" {
		opts = append(opts, grpc.WithPerRPCCredentials(bearer{token, f.secure()}))
	}
	return grpc.NewClient(address, opts...)
}

func (f credentialFlags) tlsConfig() (*tls.Config, error) {
	cfg := &tls.Config{MinVersion: tls.VersionTLS12, ServerName: f.ServerName}
	if f.CA != "" {
		pem, err := os.ReadFile(f.CA)
		if err != nil {
			return nil, fmt.Errorf("--ca: %w", err)
		}
		cfg.RootCAs = x509.NewCertPool()
		if !cfg.RootCAs.AppendCertsFromPEM(pem) {
			return nil, fmt.Errorf("--ca: %s holds no PEM certificate", f.CA)
		}
	}
	if (f.Cert == "") != (f.Key == "") {
		return nil, errors.New("--cert and --key: give both or neither")
	}
	if f.Cert != "" {
		pair, err := tls.LoadX509KeyPair(f.Cert, f.Key)
		if err != nil {
			return nil, fmt.Errorf("--cert and --key: %w", err)
		}
		cfg.Certificates = []tls.Certificate{pair}
	}
	return cfg, nil
}

func (f credentialFlags) token() (string, error) {
	var token string
	switch {
	case f.TokenFile != "" && f.TokenEnv != "":
		return "", errors.New("--token-file and --token-env: give one of them")
	case f.TokenFile != "":
		data, err := os.ReadFile(f.TokenFile)
		if err != nil {
			return "", fmt.Errorf("--token-file: %w", err)
		}
		token = strings.TrimSpace(string(data))
	case f.TokenEnv != "":
		token = strings.TrimSpace(os.Getenv(f.TokenEnv))
	default:
		return "", nil
	}
	if token == "" || strings.ContainsAny(token, " \t\r\n") {
		return "", errors.New("the token is empty or more than one word: it must stand alone, without its name")
	}
	return token, nil
}

// bearer sends a token with every call.
type bearer struct {
	token  string
	secure bool
}

// GetRequestMetadata implements [credentials.PerRPCCredentials].
func (b bearer) GetRequestMetadata(context.Context, ...string) (map[string]string, error) {
	return map[string]string{"authorization": "Bearer " + b.token}, nil
}

// RequireTransportSecurity implements [credentials.PerRPCCredentials]. A service
// without TLS on loopback is a choice that the user has made with the flags.
func (b bearer) RequireTransportSecurity() bool { return b.secure }
