package hostkeys_test

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/rs/zerolog"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
	"golang.org/x/crypto/ssh"
	"golang.org/x/crypto/ssh/knownhosts"

	"github.com/seed-3119e985/genv/remote/sshclient/hostkeys"
	"github.com/seed-3119e985/genv/snapshot/proc/proctest"
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

var now = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)

// script writes a program, and returns its name.
func script(t *testing.T, text string) string {
	t.Helper()
	name := filepath.Join(t.TempDir(), "command")
	require.NoError(t, proctest.WriteProgram(name, []byte("#!/bin/sh\n"+text+"\n")))
	return name
}

func ask(ctx context.Context, command ...string) (*hostkeys.Known, error) {
	store, name := hostkeys.NewCache(zerolog.Nop()), hostkeys.Name{Host: "GPU", Port: 2222}
	return store.Ask(ctx, store.Lookup(nil, name), command, name)
}

func TestKnownHostsCommand(t *testing.T) {
	key := ed(t).PublicKey()
	for name, tt := range map[string]struct {
		script, says string
		known        bool
	}{
		"a line":              {"echo '[gpu]:2222 " + line(key) + "'", "", true},
		"among others":        {"echo nonsense; echo 'a " + line(key) + "'; echo '*:2222 " + line(key) + "'", "", true},
		"without the port":    {"echo 'gpu " + line(key) + "'", "no key of [gpu]:2222", false},
		"nothing":             {"true", "no key of", false},
		"it fails":            {"echo '* " + line(key) + "'; echo first >&2; echo why >&2; exit 3", "exit status 3: why", false},
		"a signal":            {"kill -9 $$", "signal: killed", false},
		"too much":            {"yes | head -c 2000000", "more than 1 MiB", false},
		"a shell's variables": {`echo "$@" | grep -qF 'x y $HOME ; a[gpu]:2222' && echo '* ` + line(key) + `'`, "", true},
	} {
		t.Run(name, func(t *testing.T) {
			host, err := ask(t.Context(), script(t, tt.script), "x y $HOME ;", "a\x00H")
			if err == nil {
				err = host.Check(key, rules, now)
			}
			if tt.known {
				require.NoError(t, err)
				return
			}
			require.ErrorContains(t, err, tt.says)
		})
	}
	for _, missing := range []string{"/nonexistent/command", "echo", ""} {
		host := proctest.Try(ask(t.Context(), missing)).OK(t, "%q: as in ssh", missing)
		require.ErrorContains(t, host.Check(key, rules, now), "KnownHostsCommand", "%q: but if the host is unknown, that is why", missing)
	}
}

// TestKnownHostsCommandEnds: a command ends with the login, and its children too.
func TestKnownHostsCommandEnds(t *testing.T) {
	alive := filepath.Join(t.TempDir(), "alive")
	name := script(t, "mkfifo "+alive+"; sleep 1000 > "+alive+" & echo $! > "+alive+".pid; wait")
	ctx, cancel := context.WithCancelCause(t.Context())
	ended := make(chan error)
	go func() {
		_, err := ask(ctx, name)
		ended <- err
	}()
	require.Eventually(t, func() bool { _, err := os.Stat(alive + ".pid"); return err == nil }, 20*time.Second, 10*time.Millisecond)
	reader := proctest.Try(os.Open(alive)).OK(t) // until the child has it open too
	defer func() { require.NoError(t, reader.Close()) }()
	cancel(context.DeadlineExceeded)
	require.ErrorIs(t, <-ended, context.DeadlineExceeded)
	require.ErrorContains(t, proctest.Try(reader.Read(make([]byte, 1))).Err, "EOF", "the child has ended")
}

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }
