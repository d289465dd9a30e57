package proc_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-3119e985/genv/snapshot"
	"github.com/seed-3119e985/genv/snapshot/proc"
	"github.com/seed-3119e985/genv/snapshot/proc/proctest"
)

const passwd = `root:x:0:0:root:/root:/bin/bash
alice:x:1001:1001::/home/alice:/bin/bash
alias:x:1001:1001::/home/alice:/bin/bash
bob:x:1002:1002::/home/bob:/bin/bash
dockremap:x:998:998::/:/bin/false
moved:x:165540:1003::/home/moved:/bin/bash
`

const subuidFile = `# comment
alice:100000:65536
1002:165536:65536

root:1001:1
root:400000000:65536
dockremap:500000000:65536
alice:500000000:10
carol:300000:65536
1009:320000:65536
bob:130000:10
alias:100000:65536
ldap:600000:65536
broken
broken:x:1
broken:700000:-1
broken:700000
zero:800000:0
alice:4294967290:65536
alice:0:1
`

// etcOf is a folder like /etc, with a getent(1) first in PATH that runs a script for the keys in $*.
func etcOf(t *testing.T, nsswitch, getent string) string {
	etc, bin := t.TempDir(), t.TempDir()
	for name, text := range map[string]string{"passwd": passwd, "subuid": subuidFile, "nsswitch.conf": nsswitch} {
		require.NoError(t, os.WriteFile(filepath.Join(etc, name), []byte(text), 0o644))
	}
	require.NoError(t, proctest.WriteProgram(filepath.Join(bin, "getent"), []byte("#!/bin/sh\n"+getent)))
	t.Setenv("PATH", bin+":"+os.Getenv("PATH"))
	return etc
}

// directory has two accounts: one in the range of alice, and one with a range.
const directory = `[ "$1" != -s ] || exit 0
for key; do case $key in
100500) echo erin:x:100500:100500::/:/bin/sh ;;
ldap) echo ldap:x:50001:50001::/:/bin/sh ;;
esac; done; exit 2`

func TestAccounts(t *testing.T) {
	accounts := &proc.Accounts{Etc: etcOf(t, "passwd: files [NOTFOUND=continue] sss # ldap\n", directory)}
	for _, tt := range []struct {
		name      string
		uid, want snapshot.UID
	}{
		{"root, who is in no range", 0, 0},
		{"an account", 1002, 1002},
		{"an account in a range of root", 1001, 1001},
		{"an account of a directory service", 50001, 50001},
		{"before the range", 99999, 99999},
		{"the first one", 100000, 1001},
		{"the last one", 165535, 1001},
		{"a range of a uid", 165536, 1002},
		{"the end of that range", 231071, 1002},
		{"after all ranges", 231072, 231072},
		{"in the ranges of two", 130000, 130000},
		{"after those", 130010, 1001},
		{"an account in a range", 165540, 165540},
		{"an account of a directory service in a range", 100500, 100500},
		{"a range of root, who chooses uids for others", 400000001, 400000001},
		{"a range of dockremap and alice", 500000001, 500000001},
		{"a range of dockremap", 500000010, 500000010},
		{"a range of a name without an account", 300007, 300007},
		{"a range of that and a uid without an account", 320000, 320000},
		{"a range of a uid without an account", 370000, 370000},
		{"a range of an account of a directory service", 600001, 50001},
		{"lines that say nothing", 700000, 700000},
		{"an empty range", 800000, 800000},
		{"up to the last uid", 4294967295, 1001},
	} {
		got := proctest.Try(accounts.Wait(t.Context(), tt.uid)).OK(t, tt.name)
		require.Equal(t, tt.want, got, tt.name)
		require.Equal(t, tt.want, accounts.Resolve(t.Context(), tt.uid), tt.name)
	}
	for uid, lacks := range map[snapshot.UID]bool{0: false, 1001: false, 50001: true, 100001: false, 100500: false, 130000: true, 300007: true} {
		require.Equal(t, lacks, accounts.Lacks(t.Context(), uid), uid)
	}
}

// Without an answer, nothing is known of a range; of uids outside of ranges there is no doubt.
func TestDirectoryWithoutAnAnswer(t *testing.T) {
	for name, tt := range map[string]struct{ nsswitch, getent string }{
		"it hangs":      {"passwd: files sss\n", "exec sleep 60"},
		"it fails":      {"passwd: files sss\n", "exit 1"},
		"it is stopped": {"passwd: files sss\n", `[ "$1 $2" != "-s passwd:sss [UNAVAIL=return TRYAGAIN=return] files" ] || exit 2; exit 2`},
	} {
		accounts := &proc.Accounts{Etc: etcOf(t, tt.nsswitch, tt.getent)}
		began := time.Now()
		for range 100 {
			first, err := accounts.Of(100500)
			require.ErrorIs(t, err, proc.ErrAccountUnknown, name)
			require.EqualValues(t, 100000, first, "the range")
		}
		got := proctest.Try(accounts.Of(99999)).OK(t)
		require.EqualValues(t, 99999, got, name)
		require.Less(t, time.Since(began), time.Second, "Of doesn't wait")

		ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
		_, err := accounts.Wait(ctx, 100001)
		cancel()
		require.ErrorIs(t, err, proc.ErrAccountUnknown, name)
		require.EqualValues(t, 100500, accounts.Resolve(t.Context(), 100500), "its own number: "+name)
		require.False(t, accounts.Lacks(t.Context(), 100500), "unknown is not no: "+name)
	}
	local := &proc.Accounts{Etc: etcOf(t, "passwd: files systemd\n", `[ "$1" != -s ] || exit 1; exit 2`)}
	got := proctest.Try(local.Wait(t.Context(), 100500)).OK(t, "the files are all there is")
	require.EqualValues(t, 1001, got)
}

// Where another source than the files has the ranges, a uid without an account may be any account's.
func TestRangesOfAnotherSource(t *testing.T) {
	accounts := &proc.Accounts{Etc: etcOf(t, "passwd: files sss\nsubid: sss\n", directory)}
	for _, uid := range []snapshot.UID{0, 1001, 100500, 54321} {
		require.Equal(t, uid, proctest.Try(accounts.Wait(t.Context(), uid)).OK(t))
	}
	for _, uid := range []snapshot.UID{65536, 100001, 2147483648} {
		shared, err := accounts.Wait(t.Context(), uid)
		require.ErrorIs(t, err, proc.ErrAccountUnknown)
		require.ErrorContains(t, err, "its range is known to sss alone")
		require.EqualValues(t, proc.UnknownAccount, shared, "they share one quota")
		require.False(t, accounts.Lacks(t.Context(), uid))
		require.Equal(t, uid, accounts.Resolve(t.Context(), uid))
	}
}

// getent(1) itself finds out that a service doesn't answer.
func TestServiceThatIsNotThere(t *testing.T) {
	etc := etcOf(t, "passwd: files nosuchservice\n", "exit 9")
	t.Setenv("PATH", strings.SplitN(os.Getenv("PATH"), ":", 2)[1])
	_, err := (&proc.Accounts{Etc: etc}).Wait(t.Context(), 100500)
	require.ErrorIs(t, err, proc.ErrAccountUnknown)
	require.ErrorContains(t, err, "the directory service (nosuchservice) doesn't answer")
}

// Many uids are asked for together.
func TestManySubordinateUIDs(t *testing.T) {
	calls := filepath.Join(t.TempDir(), "calls")
	accounts := &proc.Accounts{Etc: etcOf(t, "", fmt.Sprintf("echo >>%s; sleep .1; exit 2", calls))}
	for i := range snapshot.UID(1000) {
		_, _ = accounts.Of(100600 + i)
	}
	for i := range snapshot.UID(1000) {
		require.EqualValues(t, 1001, proctest.Try(accounts.Wait(t.Context(), 100600+i)).OK(t))
	}
	require.Less(t, len(proctest.ReadFile(t, calls)), 20)
}

func TestSubuidChanges(t *testing.T) {
	changed := map[string]*proc.Accounts{}
	for name, change := range map[string]func(subuid, nsswitch string) error{
		"another range": func(subuid, _ string) error { return os.WriteFile(subuid, []byte("alice:900000:1\n"), 0o644) },
		"none":          func(subuid, _ string) error { return os.Remove(subuid) },
		"too large": func(subuid, _ string) error {
			return os.WriteFile(subuid, []byte(subuidFile+strings.Repeat("#", 8<<20)), 0o644)
		},
		"others may write it": func(subuid, _ string) error { return os.Chmod(subuid, 0o666) },
		"another source":      func(_, nsswitch string) error { return os.WriteFile(nsswitch, []byte("subid: sss\n"), 0o644) },
	} {
		etc := etcOf(t, "subid: files\n", "exit 2")
		accounts := &proc.Accounts{Etc: etc}
		require.EqualValues(t, 1001, accounts.Resolve(t.Context(), 100000), name)
		require.NoError(t, change(filepath.Join(etc, "subuid"), filepath.Join(etc, "nsswitch.conf")))
		changed[name] = accounts
	}
	for name, accounts := range changed {
		require.Eventually(t, func() bool { return accounts.Resolve(t.Context(), 100000) == 100000 }, 10*time.Second, 50*time.Millisecond, name)
	}
}
