package hostkeys_test

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/rs/zerolog"
	"github.com/stretchr/testify/require"
	"golang.org/x/crypto/ssh"
	"golang.org/x/crypto/ssh/knownhosts"

	"github.com/seed-3119e985/genv/remote/sshclient/hostkeys"
)

func TestUnreadableFiles(t *testing.T) {
	key, dir := ed(t).PublicKey(), t.TempDir()
	good, folder := filepath.Join(dir, "known_hosts"), filepath.Join(dir, "folder")
	require.NoError(t, os.WriteFile(good, []byte("gpu "+line(key)+"\n"), 0o600))
	require.NoError(t, os.Mkdir(folder, 0o700))
	var log bytes.Buffer
	d := db{hostkeys.NewCache(zerolog.New(&log)), []string{folder, good}}
	for range 3 {
		require.NoError(t, d.Check("gpu:22", key), "known by the other file")
	}
	require.Equal(t, 1, strings.Count(log.String(), "\n"), "one warning for each change: %s", &log)
	require.Contains(t, log.String(), `"file":"`+folder+`"`)

	err := d.Check("new:22", key)
	require.ErrorAs(t, err, new(*hostkeys.Unknown))
	require.ErrorContains(t, err, folder, "the key may be known there")
	r := rules
	r.AddTo = good
	require.ErrorContains(t, d.store.Accept(d.lookup("new:22"), key, r, now), folder, "or revoked")

	require.NoError(t, os.Remove(folder))
	require.NoError(t, os.WriteFile(folder, []byte("new "+line(key)), 0o600))
	require.NoError(t, d.Check("new:22", key), "read again")
	require.Equal(t, 1, strings.Count(log.String(), "\n"))
}

// TestPermissionsThatChange: chmod changes neither the time of the last write nor the size.
func TestPermissionsThatChange(t *testing.T) {
	if os.Getuid() == 0 {
		t.Skip("skipped: root can read every file")
	}
	key := ed(t).PublicKey()
	d, _ := load(t, "gpu "+line(key))
	require.NoError(t, os.Chmod(d.files[0], 0))
	require.ErrorContains(t, d.Check("gpu:22", key), "permission denied")
	require.NoError(t, os.Chmod(d.files[0], 0o600))
	require.NoError(t, d.Check("gpu:22", key))
}

func TestManyBadLines(t *testing.T) {
	key := ed(t).PublicKey()
	d, log := load(t, strings.Repeat("gpu nonsense\n", 150)+"gpu "+line(key))
	require.NoError(t, d.Check("gpu:22", key))
	require.Equal(t, 1, strings.Count(log, "\n"), "one warning: %s", log)
	require.Contains(t, log, `"line":1,"lines":150`)
}

// BenchmarkFirstCycle is what known_hosts costs the first connections to 200
// hosts with 1,000 lines: a name, a name with a port, or no line at all.
func BenchmarkFirstCycle(b *testing.B) {
	for _, kind := range []string{"plain", "hashed", "patterns"} {
		b.Run(kind, func(b *testing.B) {
			key := ed(b).PublicKey()
			file := filepath.Join(b.TempDir(), "known_hosts")
			require.NoError(b, os.WriteFile(file, manyLines(kind, key), 0o600))
			for b.Loop() {
				store := hostkeys.NewCache(zerolog.Nop())
				for i := range 200 {
					host := store.Lookup([]string{file}, hostkeys.Name{Host: fmt.Sprintf("gpu-%d", i), Port: 22})
					host.Algorithms(defaults)
					require.NoError(b, host.Check(key, rules, now))
				}
			}
		})
	}
}

func manyLines(kind string, key ssh.PublicKey) []byte {
	var text bytes.Buffer
	for i := range 1000 {
		name := fmt.Sprintf("gpu-%d", i)
		switch kind {
		case "hashed":
			name = knownhosts.HashHostname(name)
		case "patterns":
			name += fmt.Sprintf(",*.gpu-%d.lab", i)
		}
		fmt.Fprintf(&text, "%s %s\n", name, line(key))
	}
	return text.Bytes()
}
