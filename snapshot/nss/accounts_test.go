package nss_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-3119e985/genv/snapshot"
	"github.com/seed-3119e985/genv/snapshot/nss"
	"github.com/seed-3119e985/genv/snapshot/proc/proctest"
)

// TestAccount: that there is no account is something else than that it is unknown.
func TestAccount(t *testing.T) {
	file := func(content string) string {
		path := filepath.Join(t.TempDir(), "passwd")
		require.NoError(t, os.WriteFile(path, []byte(content), 0o600))
		return path
	}
	others := file("root:x:0:0:root:/root:/bin/sh\nalice:x:100:1001::/home/alice:/bin/sh\n1001\n")
	local := file("root:x:0:0:root:/root:/bin/sh\nalice:x:1001:1001::/home/alice:/bin/sh\n")
	notFound := exec.Command("sh", "-c", "exit 2").Run()
	const raz = "raz:*:1001:100:Raz:/home/raz:/bin/sh\n"
	const none, unknown = "none", "unknown"
	for name, tt := range map[string]struct {
		file, getent string
		err          error
		want         string
	}{
		"of /etc/passwd":                             {local, "", errors.New("not asked"), "alice"},
		"of a directory, where there is no file":     {"/none", raz, nil, "raz"},
		"of a directory":                             {others, raz, nil, "raz"},
		"of another uid":                             {others, "raz:*:1002:100:Raz:/home/raz:/bin/sh\n", nil, none},
		"in no database":                             {others, "", notFound, none},
		"without getent":                             {others, "", exec.ErrNotFound, none},
		"garbage":                                    {others, "1001", nil, unknown},
		"getent fails":                               {others, "", exec.Command("sh", "-c", "exit 1").Run(), unknown},
		"getent is killed":                           {others, raz, exec.Command("sh", "-c", "kill -9 $$").Run(), unknown},
		"in no database, the file can't be read":     {"/none", "", notFound, unknown},
		"the file can't be read, and without getent": {"/none", "", exec.ErrNotFound, unknown},
	} {
		passwd := nss.Passwd{File: tt.file, Getent: func(_ context.Context, database string, keys ...string) ([]byte, error) {
			require.Equal(t, "passwd 1001", database+" "+strings.Join(keys, " "))
			return []byte(tt.getent), tt.err
		}}
		account, err := passwd.WithUID(t.Context(), 1001)
		switch tt.want {
		case none:
			require.ErrorIs(t, err, nss.ErrNoAccount, name)
		case unknown:
			require.Error(t, err, name)
			require.NotErrorIs(t, err, nss.ErrNoAccount, name)
		default:
			require.NoError(t, err, name)
			require.EqualValues(t, tt.want, account.Username(), name)
			require.Equal(t, "/home/"+tt.want, account.Home, name)
		}
	}
}

// TestADirectoryThatIsDown: getent reports an account that it may have as one that isn't there.
func TestADirectoryThatIsDown(t *testing.T) {
	proctest.NeedPrograms(t, "getent")
	for services, none := range map[string]bool{"files systemd": true, "files nosuchservice": false} {
		nsswitch := filepath.Join(t.TempDir(), "nsswitch.conf")
		require.NoError(t, os.WriteFile(nsswitch, []byte("passwd: "+services+"\n"), 0o600))
		_, err := nss.Passwd{Nsswitch: nsswitch}.Named(t.Context(), "no-such-user-here")
		require.Error(t, err)
		require.Equal(t, none, errors.Is(err, nss.ErrNoAccount), "%s: %v", services, err)
	}
}

func TestUsernamesThatCantBeStored(t *testing.T) {
	for _, name := range []string{"", "r\x1bz", "a\xff", strings.Repeat("x", 5000)} {
		require.Empty(t, nss.Account{Name: name}.Username())
	}
	require.Equal(t, snapshot.Username("raz"), nss.Account{Name: "raz"}.Username())
}

func TestAccountsThatOnlyGetentKnows(t *testing.T) {
	dir := t.TempDir()
	require.NoError(t, proctest.WriteProgram(filepath.Join(dir, "getent"), []byte(`#!/bin/sh
case "$1 $3" in
"passwd alice.ldap" | "passwd 70001") echo "alice.ldap:x:70001:70002:Alice:/home/alice.ldap:/bin/sh" ;;
"passwd Alice") echo "alice:x:70003:70003:::" ;;
"passwd ") echo "alice.ldap:x:70001:70002:Alice:/home/alice.ldap:/bin/sh" ;;
*) exit 2 ;;
esac`)))
	t.Setenv("PATH", dir+":"+os.Getenv("PATH"))
	alice := nss.Account{UID: 70001, GID: 70002, Name: "alice.ldap", Home: "/home/alice.ldap"}
	got := proctest.Try(nss.Passwd{}.WithUID(t.Context(), 70001)).OK(t)
	require.Equal(t, alice, got)
	got = proctest.Try(nss.Passwd{}.Named(t.Context(), "alice.ldap")).OK(t)
	require.Equal(t, alice, got)
	require.Equal(t, []nss.Account{alice}, nss.Passwd{}.All(t.Context()))
	for _, name := range []string{"Alice", "-x", "bob.ldap"} {
		require.ErrorIs(t, proctest.Try(nss.Passwd{}.Named(t.Context(), name)).Err, nss.ErrNoAccount, name)
	}
	t.Setenv("PATH", t.TempDir())
	require.ErrorIs(t, proctest.Try(nss.Passwd{}.WithUID(t.Context(), 70001)).Err, nss.ErrNoAccount, "/etc/passwd has all accounts")
	require.NotEmpty(t, nss.Passwd{}.All(t.Context()))
}

func TestAccountsWhileGetentHangs(t *testing.T) {
	dir := t.TempDir()
	require.NoError(t, proctest.WriteProgram(filepath.Join(dir, "getent"), []byte("#!/bin/sh\nexec sleep 60\n")))
	t.Setenv("PATH", dir+":"+os.Getenv("PATH"))
	ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
	defer cancel()
	for range 2 { // it is killed, and isn't begun
		_, err := nss.Passwd{}.Named(ctx, "nobody-by-this-name")
		require.EqualError(t, err, "getent passwd nobody-by-this-name: no answer in time")
		require.NotErrorIs(t, err, nss.ErrNoAccount)
	}
}

func TestRealAccounts(t *testing.T) {
	proctest.NeedPrograms(t, "getent")
	want := proctest.Try(user.LookupId("0")).OK(t)
	for _, key := range []string{"0", want.Username} {
		out := proctest.Try(nss.Getent(t.Context(), "passwd", key)).OK(t)
		require.Equal(t, []nss.Account{{Name: want.Username, Home: want.HomeDir}}, nss.ParseAccounts(out))
	}
	require.ErrorIs(t, proctest.Try(nss.Passwd{}.WithUID(t.Context(), 4_000_000_000)).Err, nss.ErrNoAccount)
}

func FuzzParseAccounts(f *testing.F) {
	f.Add("root:x:0:0:root:/root:/bin/bash")
	f.Add("x:x:-1:0:::\ny:x:1:1:::\n")
	f.Fuzz(func(t *testing.T, text string) {
		for _, a := range nss.ParseAccounts([]byte(text)) {
			require.NotEmpty(t, a.Name)
			require.Contains(t, text, a.Name+":")
			require.Contains(t, text, a.Home)
			require.Contains(t, text, fmt.Sprint(uint32(a.UID)))
		}
	})
}

// TestNamedByDigits: getent(1) takes such a name for a uid, and lists the account.
func TestNamedByDigits(t *testing.T) {
	passwd := nss.Passwd{File: "/dev/null", Nsswitch: "/dev/null", Getent: func(_ context.Context, _ string, keys ...string) ([]byte, error) {
		if len(keys) == 0 {
			return []byte("20231234:x:1004:1::/:/bin/sh\n"), nil
		}
		return nil, exec.Command("sh", "-c", "exit 2").Run()
	}}
	account := proctest.Try(passwd.Named(t.Context(), "20231234")).OK(t)
	require.EqualValues(t, 1004, account.UID)
	require.ErrorIs(t, proctest.Try(passwd.Named(t.Context(), "1004")).Err, nss.ErrNoAccount)
}

// TestAnAccountThatIsNowhere runs itself as a uid that has no account: $USER and $HOME make none.
func TestAnAccountThatIsNowhere(t *testing.T) {
	if os.Getenv("GENV_TEST_NOWHERE") != "" {
		a, err := nss.Passwd{}.WithUID(t.Context(), snapshot.UID(os.Getuid()))
		require.ErrorIs(t, err, nss.ErrNoAccount, "%v", a)
		a = proctest.Try(nss.Passwd{}.Named(t.Context(), "root")).OK(t)
		require.Equal(t, nss.Account{Name: "root", Home: a.Home}, a)
		require.NotEqual(t, os.Getenv("HOME"), a.Home)
		return
	}
	if os.Getuid() != 0 {
		require.NotEqual(t, "true", os.Getenv("CI"), "this test has to run as root")
		t.Skip("only root can become a user without an account")
	}
	dir := t.TempDir()
	program := filepath.Join(dir, "test")
	require.NoError(t, proctest.WriteProgram(program, proctest.ReadFile(t, "/proc/self/exe")))
	for folder := dir; folder != os.TempDir() && len(folder) > 1; folder = filepath.Dir(folder) {
		require.NoError(t, os.Chmod(folder, 0o755))
	}
	command := exec.CommandContext(t.Context(), program, "-test.run=^TestAnAccountThatIsNowhere$")
	command.Dir = "/"
	command.Env = []string{"GENV_TEST_NOWHERE=1", "USER=root", "HOME=/home/mallory", "PATH=" + os.Getenv("PATH")}
	command.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: 1<<31 - 9, Gid: 1<<31 - 9}}
	proctest.Output(t, command)
}
