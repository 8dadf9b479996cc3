package rediscache

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/pointsman-dev/pointsman/cache/rediscache/redistest"
)

// authority makes certificates.
type authority struct {
	t    *testing.T
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
	dir  string
}

func newAuthority(t *testing.T) *authority {
	t.Helper()
	a := &authority{t: t, dir: t.TempDir()}
	a.cert, a.key = a.issue("ca", nil)
	return a
}

func (a *authority) file(name string) string { return filepath.Join(a.dir, name) }

// issue writes name.crt and name.key.
func (a *authority) issue(name string, ips []net.IP) (*x509.Certificate, *ecdsa.PrivateKey) {
	a.t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		a.t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(time.Now().UnixNano()), Subject: pkix.Name{CommonName: name}, IPAddresses: ips,
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		IsCA: ips == nil, BasicConstraintsValid: true,
		KeyUsage:    x509.KeyUsageCertSign | x509.KeyUsageDigitalSignature,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
	}
	parent, signer := a.cert, a.key
	if parent == nil {
		parent, signer = template, key
	}
	der, err := x509.CreateCertificate(rand.Reader, template, parent, &key.PublicKey, signer)
	if err != nil {
		a.t.Fatal(err)
	}
	cert, err := x509.ParseCertificate(der)
	if err != nil {
		a.t.Fatal(err)
	}
	keyDER, err := x509.MarshalECPrivateKey(key)
	if err != nil {
		a.t.Fatal(err)
	}
	for ext, block := range map[string]*pem.Block{
		".crt": {Type: "CERTIFICATE", Bytes: der}, ".key": {Type: "EC PRIVATE KEY", Bytes: keyDER},
	} {
		if err := os.WriteFile(a.file(name+ext), pem.EncodeToMemory(block), 0o600); err != nil {
			a.t.Fatal(err)
		}
	}
	return cert, key
}

// A wrong host, password or TLS file: check says which, and a server that starts with it is degraded and keeps trying.
func TestCheckSaysWhatIsWrong(t *testing.T) {
	ours, theirs := newAuthority(t), newAuthority(t)
	ours.issue("server", []net.IP{net.IPv4(127, 0, 0, 1)})
	ours.issue("client", []net.IP{net.IPv4(127, 0, 0, 1)})
	if err := os.WriteFile(ours.file("empty"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	plain := redistest.Start(t, "--requirepass", "pw")
	acl := redistest.Start(t, "--user", "pointsman", "on", ">pw", "~pointsman:*", "+@all", "--user", "default", "off")
	readOnly := redistest.Start(t, "--user", "pointsman", "on", ">pw", "~*", "-@all", "+get", "--user", "default", "off")
	hung := redistest.Start(t)
	hung.Signal(syscall.SIGSTOP)
	port := redistest.FreePort(t)
	secure := redistest.Start(t, "--tls-port", fmt.Sprint(port), "--tls-cert-file", ours.file("server.crt"),
		"--tls-key-file", ours.file("server.key"), "--tls-ca-cert-file", ours.file("ca.crt"))
	// With TLS 1.3 a client learns that its certificate was refused only after the handshake, and a reset may overtake that.
	oldPort := redistest.FreePort(t)
	redistest.Start(t, "--tls-port", fmt.Sprint(oldPort), "--tls-cert-file", ours.file("server.crt"), "--tls-protocols", "TLSv1.2",
		"--tls-key-file", ours.file("server.key"), "--tls-ca-cert-file", ours.file("ca.crt"))
	tlsURL := fmt.Sprintf("rediss://127.0.0.1:%d", port)
	good := TLS{CAFile: ours.file("ca.crt"), CertFile: ours.file("client.crt"), KeyFile: ours.file("client.key")}
	with := func(change func(*TLS)) TLS {
		files := good
		change(&files)
		return files
	}

	for name, c := range map[string]struct {
		url, user, password string
		tls                 TLS
		want                error
		says                string
	}{
		"all is well":               {url: "redis://:pw@" + plain.Addr},
		"password by configuration": {url: "redis://" + plain.Addr, password: "pw"},
		"acl user":                  {url: "redis://pointsman:pw@" + acl.Addr},
		"acl user by configuration": {url: "redis://" + acl.Addr, user: "pointsman", password: "pw"},
		"tls":                       {url: tlsURL, tls: good},
		"no such host":              {url: "redis://no-such-host.invalid", want: ErrConnect},
		"nobody listens":            {url: fmt.Sprintf("redis://127.0.0.1:%d", redistest.FreePort(t)), want: ErrConnect},
		"hung":                      {url: "redis://" + hung.Addr, want: ErrTimeout},
		"no password":               {url: "redis://" + plain.Addr, want: ErrAuth, says: "NOAUTH"},
		"wrong password":            {url: "redis://:hunter2@" + plain.Addr, want: ErrAuth, says: "WRONGPASS"},
		"wrong user":                {url: "redis://hunter2:pw@" + acl.Addr, want: ErrAuth, says: "WRONGPASS"},
		"user without rights":       {url: "redis://pointsman:pw@" + readOnly.Addr, want: ErrAuth, says: "NOPERM"},
		"tls to a plain port":       {url: "rediss://" + secure.Addr, tls: good, want: ErrTLS},
		"plain to a tls port":       {url: fmt.Sprintf("redis://127.0.0.1:%d", port), want: ErrConnect},
		"another authority":         {url: tlsURL, tls: with(func(f *TLS) { f.CAFile = theirs.file("ca.crt") }), want: ErrTLS, says: "authority"},
		"another server name":       {url: tlsURL, tls: with(func(f *TLS) { f.ServerName = "other" }), want: ErrTLS, says: "another host"},
		"no authority file":         {url: tlsURL, tls: with(func(f *TLS) { f.CAFile = "missing" }), want: ErrTLS, says: "authorities"},
		"empty authority file":      {url: tlsURL, tls: with(func(f *TLS) { f.CAFile = ours.file("empty") }), want: ErrTLS, says: "authorities"},
		"no client certificate":     {url: fmt.Sprintf("rediss://127.0.0.1:%d", oldPort), tls: with(func(f *TLS) { f.CertFile, f.KeyFile = "", "" }), want: ErrTLS, says: "refuses"},
		"wrong client key":          {url: tlsURL, tls: with(func(f *TLS) { f.KeyFile = theirs.file("ca.key") }), want: ErrTLS, says: "client certificate"},
	} {
		t.Run(name, func(t *testing.T) {
			cfg := config(c.url)
			cfg.Username, cfg.Password, cfg.TLS = c.user, c.password, c.tls
			shared, err := New(cfg)
			if err != nil {
				t.Fatal(err)
			}
			defer func() { _ = shared.Close() }()
			err = shared.Check(t.Context())
			if !errors.Is(err, c.want) {
				t.Errorf("check: %v, want %v", err, c.want)
			}
			if c.want == nil {
				eventually(t, "redis is ready", func() bool { return shared.Status().Ready })
				return
			}
			if err == nil || !strings.Contains(err.Error(), c.says) || strings.Contains(err.Error(), "hunter2") {
				t.Errorf("check: %v, want it to say %q and no password", err, c.says)
			}
			eventually(t, "the status says so too", func() bool { s := shared.Status(); return !s.Ready && errors.Is(s.Err, c.want) })
		})
	}
}

// A certificate that was wrong is used once it is right: the files are read for each connection.
func TestCorrectedTLSFileIsUsedWithoutARestart(t *testing.T) {
	ours := newAuthority(t)
	ours.issue("server", []net.IP{net.IPv4(127, 0, 0, 1)})
	port := redistest.FreePort(t)
	redistest.Start(t, "--tls-port", fmt.Sprint(port), "--tls-cert-file", ours.file("server.crt"),
		"--tls-key-file", ours.file("server.key"), "--tls-ca-cert-file", ours.file("ca.crt"), "--tls-auth-clients", "no")
	cfg := config(fmt.Sprintf("rediss://127.0.0.1:%d", port))
	cfg.OpenFor, cfg.TLS.CAFile = 50*time.Millisecond, filepath.Join(t.TempDir(), "ca.crt")
	c, err := New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = c.Close() }()
	eventually(t, "the status says what is wrong", func() bool { return errors.Is(c.Status().Err, ErrTLS) })
	pem, err := os.ReadFile(ours.file("ca.crt"))
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(cfg.TLS.CAFile, pem, 0o600); err != nil {
		t.Fatal(err)
	}
	eventually(t, "redis is ready", func() bool { return c.Status().Ready })
}
