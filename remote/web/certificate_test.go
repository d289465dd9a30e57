package web_test

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"math/big"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-3119e985/genv/remote/web"
)

// writePair writes a certificate with a serial number, and its key.
func writePair(t *testing.T, dir string, serial int64, changed time.Time) {
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	require.NoError(t, err)
	template := x509.Certificate{SerialNumber: big.NewInt(serial), DNSNames: []string{"gpus.example.org"}, NotAfter: time.Now().Add(time.Hour)}
	cert, err := x509.CreateCertificate(rand.Reader, &template, &template, private.Public(), private)
	require.NoError(t, err)
	key, err := x509.MarshalPKCS8PrivateKey(private)
	require.NoError(t, err)
	for name, block := range map[string]*pem.Block{"cert": {Type: "CERTIFICATE", Bytes: cert}, "key": {Type: "PRIVATE KEY", Bytes: key}} {
		path := filepath.Join(dir, name)
		require.NoError(t, os.WriteFile(path, pem.EncodeToMemory(block), 0o600))
		require.NoError(t, os.Chtimes(path, changed, changed))
	}
}

func TestCertificate(t *testing.T) {
	dir, now := t.TempDir(), time.Now()
	cert, key := filepath.Join(dir, "cert"), filepath.Join(dir, "key")
	_, err := web.OpenCertificate(cert, key, time.Now)
	require.ErrorIs(t, err, os.ErrNotExist)
	writePair(t, dir, 1, now)
	c, err := web.OpenCertificate(cert, key, func() time.Time { return now })
	require.NoError(t, err)
	config := c.Config()
	require.Equal(t, uint16(tls.VersionTLS12), config.MinVersion)
	serial := func() int64 {
		pair, err := config.GetCertificate(nil)
		require.NoError(t, err)
		leaf, err := x509.ParseCertificate(pair.Certificate[0])
		require.NoError(t, err)
		return leaf.SerialNumber.Int64()
	}
	require.EqualValues(t, 1, serial())

	writePair(t, dir, 2, now.Add(time.Hour))
	now = now.Add(2 * time.Second)
	require.EqualValues(t, 2, serial(), "it was renewed")
	good, err := os.ReadFile(key)
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(key, []byte("half of a k"), 0o600))
	now = now.Add(2 * time.Second)
	require.EqualValues(t, 2, serial(), "while it is being written")
	require.NoError(t, os.Remove(cert))
	now = now.Add(2 * time.Second)
	require.EqualValues(t, 2, serial())
	writePair(t, dir, 3, now.Add(2*time.Hour))
	now = now.Add(2 * time.Second)
	require.EqualValues(t, 3, serial())

	require.NoError(t, os.WriteFile(key, good, 0o600))
	_, err = web.OpenCertificate(cert, key, time.Now)
	require.ErrorContains(t, err, "private key does not match")
}
