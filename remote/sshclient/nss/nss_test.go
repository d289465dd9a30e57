package nss

import (
	"context"
	"fmt"
	"net/netip"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/seed-3119e985/genv/snapshot/proc/proctest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// pretend puts a getent first in PATH that runs a script and counts its calls.
func pretend(t *testing.T, script string) (calls func() int) {
	t.Helper()
	dir := t.TempDir()
	log := filepath.Join(dir, "calls")
	text := fmt.Sprintf("#!/bin/sh\necho \"$@\" >> %s\n%s\n", log, script)
	require.NoError(t, proctest.WriteProgram(filepath.Join(dir, "getent"), []byte(text)))
	t.Setenv("PATH", dir+":"+os.Getenv("PATH"))
	return func() int {
		content, _ := os.ReadFile(log) // not there before the first call
		return strings.Count(string(content), "\n")
	}
}

const onlyHere = `case "$1 $3" in
"ahosts gpu.invalid") echo "127.0.0.9       STREAM gpu.lab"; echo "127.0.0.9       DGRAM"; echo "::1             STREAM" ;;
"passwd alice.ldap") echo "alice.ldap:x:70001:70001:Alice:/home/alice.ldap:/bin/sh" ;;
"passwd 70001") echo "alice.ldap:x:70001:70001:Alice:/home/alice.ldap:/bin/sh" ;;
"passwd 70002") echo "bob:x:0:0:::" ;;
"passwd 70003") echo "garbage" ;;
*) exit 2 ;;
esac`

func TestNamesThatOnlyGetentKnows(t *testing.T) {
	calls := pretend(t, onlyHere)
	s := New()
	for network, want := range map[string][]netip.Addr{
		"ip":  {netip.MustParseAddr("127.0.0.9"), netip.MustParseAddr("::1")},
		"ip4": {netip.MustParseAddr("127.0.0.9")}, "ip6": {netip.MustParseAddr("::1")},
	} {
		got, err := s.Addresses(t.Context(), network, "gpu.invalid")
		require.NoError(t, err)
		require.Equal(t, want, got)
	}
	var all sync.WaitGroup
	for range 20 {
		all.Go(func() {
			_, err := s.Addresses(t.Context(), "ip", "gpu.invalid")
			require.NoError(t, err)
		})
	}
	all.Wait()
	require.Equal(t, 1, calls(), "one process for all of them")
	_, err := s.Addresses(t.Context(), "ip", "nowhere.invalid")
	require.ErrorContains(t, err, "nowhere.invalid")
}

func TestAddressesThatNeedNoGetent(t *testing.T) {
	calls := pretend(t, "exit 2")
	for _, text := range []string{"127.0.0.1", "::1", "fe80::1%lo"} {
		got, err := New().Addresses(t.Context(), "ip", text)
		require.NoError(t, err)
		require.Equal(t, []netip.Addr{netip.MustParseAddr(text)}, got)
	}
	require.Zero(t, calls())
}

func TestUsersThatOnlyGetentKnows(t *testing.T) {
	pretend(t, onlyHere)
	s := New()
	alice := User{UID: 70001, GID: 70001, Name: "alice.ldap", Home: "/home/alice.ldap"}
	got, err := s.UserOf(t.Context(), 70001)
	require.NoError(t, err)
	require.Equal(t, alice, got)
	got, err = s.UserNamed(t.Context(), "alice.ldap")
	require.NoError(t, err)
	require.Equal(t, alice, got)
	for _, uid := range []int{70002, 70003, 70004} {
		_, err = s.UserOf(t.Context(), uid)
		require.ErrorIs(t, err, ErrNoUser, "%d", uid)
	}
	_, err = s.UserNamed(t.Context(), "-x")
	require.ErrorIs(t, err, ErrNoUser)
}

// TestTheEnvironmentHasNoSay: `sudo -E` and `su` keep the variables of another user.
func TestTheEnvironmentHasNoSay(t *testing.T) {
	t.Setenv("USER", "mallory")
	t.Setenv("HOME", "/home/mallory")
	got, err := New().UserOf(t.Context(), 0)
	require.NoError(t, err)
	require.Equal(t, "root", got.Name)
	_, err = New().UserOf(t.Context(), 1<<31-7)
	require.ErrorIs(t, err, ErrNoUser)
}

func TestNoGetent(t *testing.T) {
	t.Setenv("PATH", t.TempDir())
	_, err := New().Addresses(t.Context(), "ip", "nowhere.invalid")
	require.ErrorContains(t, err, "nowhere.invalid")
	_, err = New().UserOf(t.Context(), 1<<31-7)
	require.ErrorIs(t, err, ErrNoUser)
}

func TestGetentThatHangs(t *testing.T) {
	pretend(t, "exec sleep 60")
	ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
	defer cancel()
	begun := time.Now()
	_, err := New().Addresses(ctx, "ip", "gpu.invalid")
	require.Error(t, err)
	require.Less(t, time.Since(begun), 30*time.Second)
}

// TestRealGetent: it is asked for what /etc/hosts and /etc/passwd have, so that the
// answers can be compared.
func TestRealGetent(t *testing.T) {
	if _, err := exec.LookPath("getent"); err != nil {
		t.Skip("skipped: this test needs getent, of glibc:", err)
	}
	s := New()
	lines, err := s.ask(t.Context(), question{"ahosts", "127.0.0.1"})
	require.NoError(t, err)
	require.Contains(t, parseHosts(lines), netip.MustParseAddr("127.0.0.1"))
	want, err := user.LookupId("0")
	require.NoError(t, err)
	for _, key := range []string{"0", want.Username} {
		got, err := s.user(t.Context(), key)
		require.NoError(t, err)
		require.Equal(t, User{Name: want.Username, Home: want.HomeDir}, got)
	}
}

func FuzzParse(f *testing.F) {
	f.Add("127.0.0.1       STREAM localhost\n::1 RAW")
	f.Add("root:x:0:0:root:/root:/bin/bash")
	f.Add("x:x:-1:0:::")
	f.Fuzz(func(t *testing.T, text string) {
		for _, a := range parseHosts(strings.Split(text, "\n")) {
			require.True(t, a.IsValid())
		}
		if u, ok := parseUser(text); ok {
			require.NotEmpty(t, u.Name)
			require.Contains(t, text, u.Home)
			require.GreaterOrEqual(t, u.UID, 0)
			_, err := strconv.Atoi(strings.Split(text, ":")[2])
			require.NoError(t, err)
		}
	})
}

// TestAnAccountThatIsNowhere runs itself as a uid that has no account: $USER and $HOME
// make none.
func TestAnAccountThatIsNowhere(t *testing.T) {
	if os.Getenv("GENV_TEST_NOWHERE") != "" {
		u, err := New().UserOf(t.Context(), os.Getuid())
		require.ErrorIs(t, err, ErrNoUser, "%v", u)
		u, err = New().UserNamed(t.Context(), "root")
		require.NoError(t, err)
		require.Equal(t, User{UID: 0, Name: "root", Home: u.Home}, u)
		require.NotEqual(t, os.Getenv("HOME"), u.Home)
		return
	}
	if os.Getuid() != 0 {
		require.NotEqual(t, "true", os.Getenv("CI"), "this test has to run as root")
		t.Skip("only root can become a user without an account")
	}
	dir := t.TempDir()
	program := filepath.Join(dir, "test")
	self, err := os.ReadFile("/proc/self/exe")
	require.NoError(t, err)
	require.NoError(t, proctest.WriteProgram(program, self))
	for folder := dir; folder != os.TempDir() && len(folder) > 1; folder = filepath.Dir(folder) {
		require.NoError(t, os.Chmod(folder, 0o755))
	}
	command := exec.CommandContext(t.Context(), program, "-test.run=^TestAnAccountThatIsNowhere$")
	command.Dir = "/"
	command.Env = []string{"GENV_TEST_NOWHERE=1", "USER=root", "HOME=/home/mallory", "PATH=" + os.Getenv("PATH")}
	command.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: 1<<31 - 9, Gid: 1<<31 - 9}}
	out, err := command.CombinedOutput()
	require.NoError(t, err, "%s", out)
}
