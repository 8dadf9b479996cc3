package rediscache

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"net"
	"os"
)

// dialer returns how connections are made. The TLS files are read here, for each connection, so that a wrong file makes Redis
// unavailable and a corrected one available again.
func dialer(files TLS, useTLS bool) func(ctx context.Context, network, addr string) (net.Conn, error) {
	return func(ctx context.Context, network, addr string) (net.Conn, error) {
		ctx, cancel := context.WithTimeout(ctx, dialTimeout)
		defer cancel()
		var d net.Dialer
		if !useTLS {
			return d.DialContext(ctx, network, addr)
		}
		config, err := tlsConfig(files, addr)
		if err != nil {
			return nil, err
		}
		plain, err := d.DialContext(ctx, network, addr)
		if err != nil {
			return nil, err
		}
		secure := tls.Client(plain, config)
		if err := secure.HandshakeContext(ctx); err != nil {
			_ = plain.Close()
			if ctx.Err() != nil { // a server without TLS waits for the end of a line that never comes
				return nil, fmt.Errorf("%w: no answer to the handshake", ErrTLS)
			}
			return nil, err
		}
		return secure, nil
	}
}

func tlsConfig(files TLS, addr string) (*tls.Config, error) {
	config := &tls.Config{MinVersion: tls.VersionTLS12, ServerName: files.ServerName}
	if config.ServerName == "" {
		host, _, err := net.SplitHostPort(addr)
		if err != nil {
			return nil, fmt.Errorf("%w: address", ErrConnect)
		}
		config.ServerName = host
	}
	if files.CAFile != "" {
		pem, err := os.ReadFile(files.CAFile)
		if err != nil {
			return nil, fmt.Errorf("%w: certificate authorities: file cannot be read", ErrTLS)
		}
		config.RootCAs = x509.NewCertPool()
		if !config.RootCAs.AppendCertsFromPEM(pem) {
			return nil, fmt.Errorf("%w: certificate authorities: no certificate in the file", ErrTLS)
		}
	}
	if files.CertFile != "" {
		pair, err := tls.LoadX509KeyPair(files.CertFile, files.KeyFile)
		if err != nil {
			return nil, fmt.Errorf("%w: client certificate: files cannot be read or do not fit each other", ErrTLS)
		}
		config.Certificates = []tls.Certificate{pair}
	}
	return config, nil
}
