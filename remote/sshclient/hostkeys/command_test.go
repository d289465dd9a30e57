package hostkeys_test

import (
	"context"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/rs/zerolog"
	"github.com/stretchr/testify/require"

	"github.com/seed-3119e985/genv/remote/sshclient/hostkeys"
	"github.com/seed-3119e985/genv/snapshot/proc/proctest"
)

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
		host, err := ask(t.Context(), missing)
		require.NoError(t, err, "%q: as in ssh", missing)
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
	reader, err := os.Open(alive) // until the child has it open too
	require.NoError(t, err)
	defer func() { require.NoError(t, reader.Close()) }()
	cancel(context.DeadlineExceeded)
	require.ErrorIs(t, <-ended, context.DeadlineExceeded)
	_, err = reader.Read(make([]byte, 1))
	require.ErrorContains(t, err, "EOF", "the child has ended")
}
