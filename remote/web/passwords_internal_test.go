package web

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"golang.org/x/crypto/bcrypt"

	"github.com/seed-3119e985/genv/snapshot/proc/proctest"
	"github.com/seed-3119e985/genv/snapshot/quota"
)

func userLine(t *testing.T, user, password string, cost int) string {
	hash := proctest.Try(bcrypt.GenerateFromPassword([]byte(password), cost)).OK(t)
	return "  " + user + ": " + strings.Replace(string(hash), "$2a$", "$2y$", 1) + "\n" // as htpasswd writes it
}

// write replaces a file, as editors do.
func write(t *testing.T, path, content string) {
	require.NoError(t, os.WriteFile(path+".new", []byte(content), 0o600))
	require.NoError(t, os.Rename(path+".new", path))
}

// users is the content of a file with users.
func users(entries ...string) string { return "basic_auth_users:\n" + strings.Join(entries, "") }

// accessFile is a file of which no change must fail, unless a test takes the failures.
type accessFile struct {
	*Access
	t      *testing.T
	path   string
	now    time.Time
	failed []error
}

func fileOf(t *testing.T, entries ...string) *accessFile {
	f := &accessFile{t: t, path: filepath.Join(t.TempDir(), "web.yml"), now: time.Now()}
	write(t, f.path, users(entries...))
	var err error
	f.Access, err = OpenAccess(f.path, func() time.Time { return f.now }, func(err error) { f.failed = append(f.failed, err) })
	require.NoError(t, err)
	t.Cleanup(func() { require.Empty(t, f.failed) })
	return f
}

// takeFailure is the only failure.
func (f *accessFile) takeFailure() error {
	require.Len(f.t, f.failed, 1)
	err := f.failed[0]
	f.failed = nil
	return err
}

func (f *accessFile) accepts(user, password string) bool {
	ok := proctest.Try(f.check(f.t.Context(), "192.0.2.1", user, password)).OK(f.t)
	return ok
}

func TestCheck(t *testing.T) {
	f := fileOf(t, "# users\n\n", userLine(t, "alice", "one", 4), userLine(t, "bob", "two", 5))
	for range 3 { // also when it is remembered
		require.True(t, f.accepts("alice", "one"))
		require.True(t, f.accepts("bob", "two"))
		for _, wrong := range [][2]string{{"alice", "two"}, {"alice", ""}, {"alice", "one "}, {"Alice", "one"}, {"", ""}, {"eve", "one"}, {"alice one", ""}, {"alice", strings.Repeat("x", 999)}} {
			require.False(t, f.accepts(wrong[0], wrong[1]), wrong)
		}
	}
	require.Len(t, f.right, 2)

	write(t, f.path, users(userLine(t, "alice", "new", 4)))
	require.True(t, f.accepts("alice", "one"), "it is looked at once a second")
	f.now = f.now.Add(time.Second)
	require.False(t, f.accepts("alice", "one"))
	require.False(t, f.accepts("bob", "two"), "who was removed")
	require.True(t, f.accepts("alice", "new"))

	for content, want := range map[string]string{
		users("  alice: '{SHA}x'\n"):             "web.yml:2:10: not a bcrypt hash",
		"basic_auth_users: [\n":                  "web.yml:1",
		"tls_server_config: {cert_file: none}\n": "write both cert_file and key_file",
	} {
		write(t, f.path, content)
		f.now = f.now.Add(time.Minute)
		require.True(t, f.accepts("alice", "new"), "a file that isn't right changes nothing")
		require.True(t, f.accepts("alice", "new"))
		said := f.takeFailure() // once
		require.ErrorContains(t, said, want)
		require.ErrorContains(t, said, "what was read before stays in force")
	}
	require.NoError(t, os.Remove(f.path))
	f.now = f.now.Add(time.Minute)
	require.True(t, f.accepts("alice", "new"))
	require.False(t, f.accepts("bob", "two"))
	write(t, f.path, users(userLine(t, "carol", "three", 4)))
	f.now = f.now.Add(time.Minute)
	require.True(t, f.accepts("carol", "three"))
	require.False(t, f.accepts("alice", "new"))
	require.ErrorIs(t, f.takeFailure(), os.ErrNotExist)
}

// TestRemembered: a password that was right costs nothing for some minutes.
func TestRemembered(t *testing.T) {
	f := fileOf(t, userLine(t, "alice", "one", 4))
	require.True(t, f.accepts("alice", "one"))
	release := proctest.Try(f.turns.Take(t.Context(), "192.0.2.9")).OK(t) // no check can run any more
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	require.True(t, f.accepts("alice", "one"))
	for _, password := range []string{"wrong", "one "} {
		require.ErrorIs(t, proctest.Try(f.check(ctx, "192.0.2.1", "alice", password)).Err, context.Canceled)
	}
	f.now = f.now.Add(rightFor + time.Second)
	require.ErrorIs(t, proctest.Try(f.check(ctx, "192.0.2.1", "alice", "one")).Err, context.Canceled, "it is checked again")
	release()
	require.Zero(t, f.turns.Waiting(), "nothing is kept of those who are gone")
}

// TestTurns: someone who tries passwords, and as many at a time as possible, delays no one at another
// address by more than the check that runs, and is refused when too many wait.
func TestTurns(t *testing.T) {
	f := fileOf(t, userLine(t, "alice", "one", 10))
	ctx, cancel := context.WithCancel(t.Context())
	var guessed, refused atomic.Int64
	var guessing sync.WaitGroup
	for i := range 64 {
		guessing.Go(func() {
			for ctx.Err() == nil {
				switch right, err := f.check(ctx, "192.0.2.1", "alice", fmt.Sprint("guess", i)); {
				case right:
					t.Error("a wrong password was right")
				case err == nil:
					guessed.Add(1)
				case errors.Is(err, quota.ErrBusy):
					refused.Add(1)
					time.Sleep(time.Millisecond)
				}
			}
		})
	}
	require.Eventually(t, func() bool { return guessed.Load() > 0 && refused.Load() > 0 }, time.Minute, time.Millisecond)
	for range 8 {
		f.mu.Lock()
		clear(f.right) // it isn't remembered
		f.mu.Unlock()
		before := guessed.Load()
		require.True(t, proctest.Try(f.check(t.Context(), "192.0.2.2", "alice", "one")).OK(t))
		// of others: one that had ended and wasn't counted yet, the one that ran, and one that had its turn
		require.LessOrEqual(t, guessed.Load()-before, int64(3), "checks of others meanwhile")
	}
	cancel()
	guessing.Wait()
	require.Zero(t, f.turns.Waiting())
}

func TestClients(t *testing.T) {
	for remote, want := range map[string]string{
		"192.0.2.1:80": "192.0.2.1", "192.0.2.1:81": "192.0.2.1", "[::ffff:192.0.2.1]:80": "192.0.2.1",
		"[2001:db8:1:2:3::4]:80": "2001:db8:1:2::/64", "[2001:db8:1:2:9::]:80": "2001:db8:1:2::/64", "[fe80::1%eth0]:80": "fe80::/64", "@": "@",
	} {
		require.Equal(t, want, clientOf(remote))
	}
}

// TestUnknownUsers: a check costs what it costs for those who exist.
func TestUnknownUsers(t *testing.T) {
	f := fileOf(t, userLine(t, "bob", "two", 4), userLine(t, "alice", "one", 7), userLine(t, "carol", "three", 5))
	known, _, _ := f.lookUp("alice", "x")
	unknown, _, _ := f.lookUp("eve", "x")
	costs := func(hash []byte) int {
		return proctest.Try(bcrypt.Cost(hash)).OK(t)
	}
	require.Equal(t, costs(known), costs(unknown))
	require.Equal(t, 7, costs(unknown))
	require.False(t, f.accepts("eve", "one"), "the hash is another user's")
}

func TestManyAtOnce(t *testing.T) {
	f := fileOf(t, userLine(t, "alice", "one", 4))
	var all sync.WaitGroup
	for range 20 {
		all.Go(func() {
			if ok, err := f.check(t.Context(), "192.0.2.1", "alice", "one"); err != nil || !ok {
				t.Error(ok, err)
			}
		})
	}
	all.Wait()
}

func TestFilesThatAreRefused(t *testing.T) {
	good := userLine(t, "alice", "one", 4)
	for content, want := range map[string]string{
		"":                                              "web.yml:1:1: the file is empty",
		"basic_auth_users:\n":                           "web.yml:1:1: basic_auth_users: expected a mapping",
		"basic_auth_users: {}\n":                        "there are no users",
		users("  alice: '$apr1$x$y'\n"):                 "web.yml:2:10: not a bcrypt hash, as `htpasswd -nB USER` prints it",
		users("  alice: secret\n"):                      "web.yml:2:10",
		users(good, "  bob:\n"):                         "web.yml:3:3: bob: expected text",
		users("  ''" + good[len("  alice"):]):           "web.yml:2:3: a user's name must not be empty",
		users("  'a:b'" + good[len("  alice"):]):        "or contain a colon",
		users(good, good):                               "web.yml:3:3",
		users(good[:40], "\n"):                          "web.yml:2:10",
		users(strings.Replace(good, "$04$", "$31$", 1)): "web.yml:2:10: a cost of 31 is too slow",
		users(good) + "basic_auth_user:\n":              "web.yml:3:1: unknown key \"basic_auth_user\"",
		"http_server_config: {http2: true}\n":           "web.yml:1:1: unknown key \"http_server_config\"",
		"tls_server_config: {cert_file: a}\n":           "write both cert_file and key_file",
		"tls_server_config: {key_file: a}\n":            "write both cert_file and key_file",
		"tls_server_config:\n  cert_file: a\n  key_file: b\n  cert_fil: c\n":                                  "web.yml:4:3: unknown key \"cert_fil\"",
		"tls_server_config:\n  cert_file: a\n  key_file: b\n  min_version: TLS10\n":                           "web.yml:4:16: min_version: unknown value \"TLS10\"",
		"tls_server_config:\n  cert_file: a\n  key_file: b\n  client_auth_type: Verify\n":                     "web.yml:4:21: client_auth_type: unknown value",
		"tls_server_config:\n  cert_file: a\n  key_file: b\n  client_ca_file: c\n":                            "client_ca_file is not used",
		"tls_server_config:\n  cert_file: a\n  key_file: b\n  client_auth_type: RequireAndVerifyClientCert\n": "needs client_ca_file",
		"tls_server_config:\n  cert_file: a\n  key_file: b\n":                                                 "no such file",
	} {
		path := filepath.Join(t.TempDir(), "web.yml")
		write(t, path, content)
		_, err := OpenAccess(path, time.Now, nil)
		require.ErrorContains(t, err, want, content)
		require.NotContains(t, err.Error(), "$04$", "a hash is nothing for a log")
	}
	require.Error(t, proctest.Try(OpenAccess(t.TempDir(), time.Now, nil)).Err)
	require.ErrorIs(t, proctest.Try(OpenAccess(filepath.Join(t.TempDir(), "none"), time.Now, nil)).Err, os.ErrNotExist)
}
