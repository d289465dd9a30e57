package web_test

import (
	"crypto/tls"
	"crypto/x509"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/seed-3119e985/genv/remote/testfleet"
	"github.com/seed-3119e985/genv/remote/web"
)

// writePair writes a certificate with a name, and its key.
func writePair(t *testing.T, dir, name string, changed time.Time) {
	testfleet.WriteCertificate(t, dir, name, "gpus.example.org")
	for _, file := range []string{"cert", "key"} {
		require.NoError(t, os.Chtimes(filepath.Join(dir, file), changed, changed))
	}
}

// TestCertificates are followed when they are renewed.
func TestCertificates(t *testing.T) {
	dir, now := t.TempDir(), time.Now()
	path, cert, key := filepath.Join(dir, "web.yml"), filepath.Join(dir, "cert"), filepath.Join(dir, "key")
	require.NoError(t, os.WriteFile(path, []byte("tls_server_config: {cert_file: cert, key_file: key}\n"), 0o600))
	_, err := web.OpenAccess(path, time.Now, nil)
	require.ErrorIs(t, err, os.ErrNotExist)
	writePair(t, dir, "1", now)
	failed := 0
	access, err := web.OpenAccess(path, func() time.Time { return now }, func(error) { failed++ })
	require.NoError(t, err)
	require.Equal(t, web.Demands{TLS: true}, access.Demands())
	config := access.TLS()
	name := func() string {
		config, err := config.GetConfigForClient(nil)
		require.NoError(t, err)
		require.Equal(t, uint16(tls.VersionTLS12), config.MinVersion)
		leaf, err := x509.ParseCertificate(config.Certificates[0].Certificate[0])
		require.NoError(t, err)
		return leaf.Subject.CommonName
	}
	require.Equal(t, "1", name())

	writePair(t, dir, "2", now.Add(time.Hour))
	now = now.Add(2 * time.Second)
	require.Equal(t, "2", name(), "it was renewed")
	require.Zero(t, failed)
	good, err := os.ReadFile(key)
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(key, []byte("half of a k"), 0o600))
	now = now.Add(2 * time.Second)
	require.Equal(t, "2", name(), "while it is being written")
	require.Equal(t, 1, failed)
	require.NoError(t, os.Remove(cert))
	now = now.Add(2 * time.Second)
	require.Equal(t, "2", name())
	writePair(t, dir, "3", now.Add(2*time.Hour))
	now = now.Add(2 * time.Second)
	require.Equal(t, "3", name())
	require.Equal(t, 2, failed)

	later := filepath.Join(dir, "later")
	require.NoError(t, os.Mkdir(later, 0o700))
	require.NoError(t, os.WriteFile(path, []byte("tls_server_config: {cert_file: later/cert, key_file: later/key}\n"), 0o600))
	for range 3 {
		now = now.Add(2 * time.Second)
		require.Equal(t, "3", name(), "what the file names isn't there yet")
	}
	require.Equal(t, 3, failed, "it is said once")
	writePair(t, later, "4", now)
	now = now.Add(2 * time.Second)
	require.Equal(t, "4", name())

	require.NoError(t, os.WriteFile(path, []byte("tls_server_config: {cert_file: cert, key_file: key, min_version: TLS13}\n"), 0o600))
	now = now.Add(2 * time.Second)
	now3, err := config.GetConfigForClient(nil)
	require.NoError(t, err)
	require.Equal(t, uint16(tls.VersionTLS13), now3.MinVersion)

	require.NoError(t, os.WriteFile(key, good, 0o600))
	_, err = web.OpenAccess(path, time.Now, nil)
	require.ErrorContains(t, err, "private key does not match")
}

// TestFIFO: reading a file that is a FIFO doesn't wait for a writer.
func TestFIFO(t *testing.T) {
	const config = `tls_server_config:
  cert_file: cert
  key_file: key
  client_ca_file: ca
  client_auth_type: RequireAndVerifyClientCert
`
	for _, name := range []string{"web.yml", "cert", "key", "ca"} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			writePair(t, dir, "1", time.Now())
			require.NoError(t, os.Symlink("cert", filepath.Join(dir, "ca")))
			path := filepath.Join(dir, "web.yml")
			require.NoError(t, os.WriteFile(path, []byte(config), 0o600))
			_, err := web.OpenAccess(path, time.Now, nil)
			require.NoError(t, err)
			require.NoError(t, os.Remove(filepath.Join(dir, name)))
			require.NoError(t, unix.Mkfifo(filepath.Join(dir, name), 0o600))
			opened := make(chan error, 1)
			go func() {
				_, err := web.OpenAccess(path, time.Now, nil)
				opened <- err
			}()
			select {
			case err := <-opened:
				require.ErrorContains(t, err, "not a regular file")
			case <-time.After(10 * time.Second):
				require.Fail(t, "it waits")
			}
		})
	}
}

// TestWeakerFiles: a listener that was opened for other machines isn't opened to all by a change.
func TestWeakerFiles(t *testing.T) {
	dir, now := t.TempDir(), time.Now()
	writePair(t, dir, "1", now)
	path := filepath.Join(dir, "web.yml")
	const (
		server = "tls_server_config:\n  cert_file: cert\n  key_file: key\n"
		verify = server + "  client_ca_file: cert\n  client_auth_type: RequireAndVerifyClientCert\n"
		users  = "basic_auth_users:\n  alice: $2y$04$abcdefghijklmnopqrstuuWVIXLKmRDiARbKcRUGZqtaZ5APPzjPa\n"
	)
	for _, row := range []struct{ before, after, says string }{
		{server + users, server, "basic_auth_users was removed: restart"},
		{server + users, users, "tls_server_config was added or removed: restart"},
		{users, server + users, "tls_server_config was added or removed: restart"},
		{verify, server, "client certificates aren't required any more: restart"},
		{verify + users, verify, "basic_auth_users was removed"},
		{server, verify, ""},
		{server, server + users, ""},
	} {
		require.NoError(t, os.WriteFile(path, []byte(row.before), 0o600))
		var failed error
		access, err := web.OpenAccess(path, func() time.Time { return now }, func(err error) { failed = err })
		require.NoError(t, err)
		before := access.Demands()
		require.NoError(t, os.WriteFile(path, []byte(row.after), 0o600))
		now = now.Add(2 * time.Second)
		after := access.Demands()
		if row.says == "" {
			require.NoError(t, failed)
			require.NotEqual(t, before, after)
			continue
		}
		require.ErrorContains(t, failed, row.says)
		require.Equal(t, before, after)
	}
}
