package hostkeys_test

import (
	"context"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/rs/zerolog"
	"github.com/stretchr/testify/require"
	"golang.org/x/crypto/ssh"

	"github.com/seed-3119e985/genv/remote/sshclient/hostkeys"
)

var now = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)

// needsProgram skips a test that needs a program of OpenSSH's, none of which runs
// for a uid without an account. A missing program is a failure with CI=true.
func needsProgram(t testing.TB, name string) {
	t.Helper()
	if _, err := user.LookupId(strconv.Itoa(os.Getuid())); err != nil {
		t.Skip("skipped: OpenSSH does not run for a uid without an account:", err)
	}
	_, err := exec.LookPath(name)
	if err != nil && os.Getenv("CI") == "true" {
		t.Fatalf("this test needs %s, and CI must not skip it", name)
	}
	if err != nil {
		t.Skipf("skipped: this test needs %s", name)
	}
}

func revokedBy(t testing.TB, store *hostkeys.Store, file string, key ssh.PublicKey) error {
	t.Helper()
	return store.CheckRevoked(t.Context(), []string{file}, hostkeys.Name{Host: "gpu"}, key, rules)
}

func TestRevokedList(t *testing.T) {
	key, other, ca := ed(t), ed(t), ed(t)
	cert := &ssh.Certificate{Key: key.PublicKey(), CertType: ssh.HostCert, ValidBefore: ssh.CertTimeInfinity}
	require.NoError(t, cert.SignCert(randomness{}, ca))
	file := filepath.Join(t.TempDir(), "revoked")
	store := hostkeys.NewStore(zerolog.Nop())
	for name, tt := range map[string]struct {
		content    string
		key        ssh.PublicKey
		line       int // 0: not revoked
		unreadable bool
	}{
		"listed":                        {"# gone\n\n" + line(key.PublicKey()) + " comment\n", key.PublicKey(), 3, false},
		"not listed":                    {line(other.PublicKey()), key.PublicKey(), 0, false},
		"empty":                         {"", key.PublicKey(), 0, false},
		"a comment":                     {" # " + line(key.PublicKey()), key.PublicKey(), 0, false},
		"in a certificate":              {line(key.PublicKey()), cert, 1, false},
		"an authority":                  {line(other.PublicKey()) + "\n" + line(ca.PublicKey()), cert, 2, false},
		"an authority, for a plain key": {line(ca.PublicKey()), key.PublicKey(), 0, false},
		"a certificate":                 {line(cert), key.PublicKey(), 1, false},
		"with options":                  {"no-pty " + line(other.PublicKey()), key.PublicKey(), 0, true},
		"other text":                    {"-----BEGIN", key.PublicKey(), 0, true},
		"another type":                  {"ssh-rsa " + strings.Fields(line(other.PublicKey()))[1], key.PublicKey(), 0, true},
		"a cut line":                    {line(other.PublicKey())[:40], key.PublicKey(), 0, true},
		"a known_hosts line":            {"gpu " + line(other.PublicKey()), key.PublicKey(), 0, true},
		"a binary list that is cut":     {"SSHKRL\n\x00\x00", key.PublicKey(), 0, true},
	} {
		t.Run(name, func(t *testing.T) {
			require.NoError(t, os.WriteFile(file, []byte(tt.content), 0o600))
			err := revokedBy(t, store, file, tt.key)
			var changed *hostkeys.Changed
			switch {
			case tt.unreadable:
				require.ErrorContains(t, err, file)
				require.NotErrorAs(t, err, &changed)
			case tt.line == 0:
				require.NoError(t, err)
			default:
				require.ErrorAs(t, err, &changed)
				require.True(t, changed.Revoked)
				require.Equal(t, []hostkeys.Place{{File: file, Line: tt.line}}, changed.Known)
			}
		})
	}
	require.NoError(t, os.Remove(file))
	require.ErrorContains(t, revokedBy(t, store, file, key.PublicKey()), "no such file", "it was read before, and is gone")
	require.ErrorContains(t, revokedBy(t, store, t.TempDir(), key.PublicKey()), "not a regular file")
}

// randomness is for keys that need none.
type randomness struct{}

func (randomness) Read(p []byte) (int, error) { return len(p), nil }

func TestBinaryRevocationList(t *testing.T) {
	needsProgram(t, "ssh-keygen")
	key, other := ed(t).PublicKey(), ed(t).PublicKey()
	dir := t.TempDir()
	list, pub := filepath.Join(dir, "krl"), filepath.Join(dir, "key.pub")
	revoke := func(key ssh.PublicKey) {
		require.NoError(t, os.WriteFile(pub, ssh.MarshalAuthorizedKey(key), 0o600))
		out, err := exec.Command("ssh-keygen", "-q", "-k", "-f", list, pub).CombinedOutput()
		require.NoError(t, err, "%s", out)
	}
	store := hostkeys.NewStore(zerolog.Nop())
	revoke(key)
	var changed *hostkeys.Changed
	require.ErrorAs(t, revokedBy(t, store, list, key), &changed)
	require.ErrorContains(t, changed, list+":", "the file, which has no lines")
	require.NotContains(t, changed.Error(), list+":0")
	require.NoError(t, revokedBy(t, store, list, other))

	path := os.Getenv("PATH")
	t.Setenv("PATH", dir)
	require.NoError(t, revokedBy(t, store, list, other), "asked once for each key and list")
	require.ErrorContains(t, revokedBy(t, store, list, ed(t).PublicKey()), "ssh-keygen", "without the program no host is trusted")
	t.Setenv("PATH", path)
	revoke(other)
	require.ErrorAs(t, revokedBy(t, store, list, other), &changed, "asked again after the list has changed")
	require.NoError(t, revokedBy(t, store, list, key))

	cancelled, cancel := context.WithCancel(t.Context())
	cancel()
	require.ErrorIs(t, store.CheckRevoked(cancelled, []string{list}, hostkeys.Name{Host: "gpu"}, ed(t).PublicKey(), rules), context.Canceled)
}

// FuzzRevoked: no text hides the key in the line behind it, unless it refuses all.
func FuzzRevoked(f *testing.F) {
	key := ed(f).PublicKey()
	for _, seed := range []string{"", "#", "ssh-ed25519", "ssh-ed25519 AAAA", line(key), "a b c\n", "\x00\n", "\r"} {
		f.Add([]byte(seed))
	}
	file := filepath.Join(f.TempDir(), "revoked")
	f.Fuzz(func(t *testing.T, text []byte) {
		require.NoError(t, os.WriteFile(file, append(append([]byte("# "), text...), "\n"+line(key)+"\n"...), 0o600))
		require.Error(t, revokedBy(t, hostkeys.NewStore(zerolog.Nop()), file, key))
	})
}
