package auth_test

import (
	"crypto/ed25519"
	"crypto/rand"
	"encoding/pem"
	"os"
	"path/filepath"
	"testing"

	"github.com/rs/zerolog"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
	"golang.org/x/crypto/ssh"
	"golang.org/x/crypto/ssh/agent"

	"github.com/seed-3119e985/genv/remote/sshclient/auth"
	"github.com/seed-3119e985/genv/remote/sshclient/config"
	"github.com/seed-3119e985/genv/remote/testfleet"
	"github.com/seed-3119e985/genv/snapshot/proc/proctest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// key writes a key file, and its .pub, and returns the name and the public key.
func key(t *testing.T, name string, mode os.FileMode) (string, ssh.PublicKey, ed25519.PrivateKey) {
	t.Helper()
	_, private, err := ed25519.GenerateKey(rand.Reader)
	require.NoError(t, err)
	block := proctest.Try(ssh.MarshalPrivateKey(private, "")).OK(t)
	signer := proctest.Try(ssh.NewSignerFromKey(private)).OK(t)
	file := filepath.Join(t.TempDir(), name)
	require.NoError(t, os.WriteFile(file, pem.EncodeToMemory(block), mode))
	require.NoError(t, os.Chmod(file, mode)) // whatever the umask
	require.NoError(t, os.WriteFile(file+".pub", ssh.MarshalAuthorizedKey(signer.PublicKey()), 0o644))
	return file, signer.PublicKey(), private
}

// serve is an agent with the keys given.
func serve(t *testing.T, keys ...ed25519.PrivateKey) string {
	t.Helper()
	ring := agent.NewKeyring()
	for _, k := range keys {
		require.NoError(t, ring.Add(agent.AddedKey{PrivateKey: k}))
	}
	return testfleet.ServeAgent(t, ring)
}

func offered(keys auth.Keys) (prints []string) {
	for _, signer := range keys.Signers {
		prints = append(prints, ssh.FingerprintSHA256(signer.PublicKey()))
	}
	return prints
}

func TestOrder(t *testing.T) {
	file, public, _ := key(t, "file", 0o600)
	held, heldPublic, heldPrivate := key(t, "held", 0o600)
	_, strangerPublic, stranger := key(t, "stranger", 0o600)
	ring := auth.NewKeyring(nil, zerolog.Nop())
	defer ring.Close()
	s := config.HostConfig{IdentityFiles: []string{file, held}, IdentityAgent: serve(t, stranger, heldPrivate)}
	require.Equal(t, []string{ssh.FingerprintSHA256(heldPublic), ssh.FingerprintSHA256(strangerPublic), ssh.FingerprintSHA256(public)},
		offered(ring.Keys(s)), "configured keys of the agent, its others, then files, each once")
	s.IdentitiesOnly = true
	require.Equal(t, []string{ssh.FingerprintSHA256(heldPublic), ssh.FingerprintSHA256(public)}, offered(ring.Keys(s)))
	s.IdentityAgent = ""
	require.Equal(t, []string{ssh.FingerprintSHA256(public), ssh.FingerprintSHA256(heldPublic)}, offered(ring.Keys(s)))
}

func TestUnusableFiles(t *testing.T) {
	open, _, _ := key(t, "open", 0o644)
	garbage := filepath.Join(t.TempDir(), "garbage")
	require.NoError(t, os.WriteFile(garbage, []byte("-----BEGIN RSA PRIVATE KEY-----\nAAAA\n-----END RSA PRIVATE KEY-----\n"), 0o600))
	ring := auth.NewKeyring(nil, zerolog.Nop())
	defer ring.Close()
	for name, says := range map[string]string{
		open: "chmod 600", garbage: "cannot be read", t.TempDir(): "not a key file", "/nonexistent/key": "no key to offer",
	} {
		keys := ring.Keys(config.HostConfig{IdentityFiles: []string{name}})
		require.Empty(t, keys.Signers, name)
		require.Contains(t, keys.Login().Tried(), says)
	}
}

func TestMissingAgent(t *testing.T) {
	file, _, _ := key(t, "file", 0o600)
	ring := auth.NewKeyring(nil, zerolog.Nop())
	defer ring.Close()
	keys := ring.Keys(config.HostConfig{IdentityFiles: []string{file}, IdentityAgent: "/nonexistent/agent"})
	require.Len(t, keys.Signers, 1, "the file is used")
	require.Contains(t, keys.Login().Tried(), "agent does not answer")
}
