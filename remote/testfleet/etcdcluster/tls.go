package etcdcluster

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// Certificates are PEM files for clients of a cluster with TLS. Named is as Cert, with a common
// name, which etcd takes as long as it has no users.
type Certificates struct {
	CA, Cert, Key, Named string
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
// a certificate of its authority.
func StartTLS(t testing.TB, members int) (*Cluster, Certificates) {
	t.Helper()
	c := prepare(t, members)
	files := c.certify(t.TempDir())
	c.scheme, c.tls = "https://", files.Config(t)
	c.flags = []string{"--cert-file", files.Cert, "--key-file", files.Key, "--trusted-ca-file", files.CA, "--client-cert-auth"}
	c.beginAll()
	return c, files
}

// certify makes an authority, and a certificate for the members and their clients.
func (c *Cluster) certify(dir string) Certificates {
	c.t.Helper()
	authority := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "authority"}, IsCA: true, BasicConstraintsValid: true,
		KeyUsage: x509.KeyUsageCertSign, NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(24 * time.Hour),
	}
	leaf := &x509.Certificate{
		SerialNumber: big.NewInt(2), NotBefore: authority.NotBefore, NotAfter: authority.NotAfter,
		KeyUsage: x509.KeyUsageDigitalSignature, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
	}
	for _, m := range c.members {
		leaf.IPAddresses = append(leaf.IPAddresses, net.ParseIP(m.address))
	}
	signer, key := c.newKey(), c.newKey()
	secret, err := x509.MarshalPKCS8PrivateKey(key)
	require.NoError(c.t, err)
	files := Certificates{filepath.Join(dir, "ca.pem"), filepath.Join(dir, "cert.pem"), filepath.Join(dir, "key.pem"), filepath.Join(dir, "named.pem")}
	c.writePEM(files.CA, "CERTIFICATE", c.sign(authority, authority, signer, signer))
	c.writePEM(files.Cert, "CERTIFICATE", c.sign(leaf, authority, key, signer))
	c.writePEM(files.Key, "PRIVATE KEY", secret)
	leaf.Subject.CommonName = "genv"
	c.writePEM(files.Named, "CERTIFICATE", c.sign(leaf, authority, key, signer))
	return files
}

func (c *Cluster) newKey() *ecdsa.PrivateKey {
	c.t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	require.NoError(c.t, err)
	return key
}

func (c *Cluster) sign(certificate, authority *x509.Certificate, key, signer *ecdsa.PrivateKey) []byte {
	c.t.Helper()
	data, err := x509.CreateCertificate(rand.Reader, certificate, authority, &key.PublicKey, signer)
	require.NoError(c.t, err)
	return data
}

func (c *Cluster) writePEM(file, kind string, data []byte) {
	c.t.Helper()
	require.NoError(c.t, os.WriteFile(file, pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: data}), 0o600))
}
