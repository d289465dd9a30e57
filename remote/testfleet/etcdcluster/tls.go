package etcdcluster

import (
	"crypto/tls"
	"crypto/x509"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/seed-3119e985/genv/remote/testfleet"
)

// Certificates are PEM files for clients of a cluster with TLS.
type Certificates struct {
	CA, Cert, Key string
}

// Named are those with a common name, which etcd takes as long as it has no users.
func (f *Certificates) Named() *Certificates {
	dir := filepath.Join(filepath.Dir(f.CA), "named")
	return &Certificates{f.CA, filepath.Join(dir, "cert"), filepath.Join(dir, "key")}
}

// Config is that of a client with its certificate.
func (f *Certificates) Config(t testing.TB) *tls.Config {
	t.Helper()
	config := f.Anonymous(t)
	pair, err := tls.LoadX509KeyPair(f.Cert, f.Key)
	require.NoError(t, err)
	config.Certificates = []tls.Certificate{pair}
	return config
}

// Anonymous is the Config of a client without a certificate.
func (f *Certificates) Anonymous(t testing.TB) *tls.Config {
	t.Helper()
	text, err := os.ReadFile(f.CA)
	require.NoError(t, err)
	config := &tls.Config{MinVersion: tls.VersionTLS12, RootCAs: x509.NewCertPool()}
	require.True(t, config.RootCAs.AppendCertsFromPEM(text))
	return config
}

// StartTLS is Start for a cluster that speaks TLS with clients, and only with those that have
// one of its certificates.
func StartTLS(t testing.TB, members int) (*Cluster, *Certificates) {
	t.Helper()
	c, dir := prepare(t, members), t.TempDir()
	files := &Certificates{filepath.Join(dir, "ca"), filepath.Join(dir, "cert"), filepath.Join(dir, "key")}
	var addresses []string
	for _, m := range c.members {
		addresses = append(addresses, m.address)
	}
	testfleet.WriteCertificate(t, dir, "", addresses...)
	require.NoError(t, os.Mkdir(filepath.Join(dir, "named"), 0o700))
	testfleet.WriteCertificate(t, filepath.Join(dir, "named"), "genv")
	cert, err := os.ReadFile(files.Cert)
	require.NoError(t, err)
	named, err := os.ReadFile(files.Named().Cert)
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(files.CA, slices.Concat(cert, named), 0o600))
	c.scheme, c.tls = "https://", files.Config(t)
	c.flags = []string{"--cert-file", files.Cert, "--key-file", files.Key, "--trusted-ca-file", files.CA, "--client-cert-auth"}
	c.beginAll()
	return c, files
}
