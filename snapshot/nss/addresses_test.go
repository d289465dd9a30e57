package nss

import (
	"context"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/seed-3119e985/genv/snapshot/proc/proctest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// fakeGetent puts a getent first in PATH that runs a script and counts its calls.
func fakeGetent(t *testing.T, script string) (calls func() int) {
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
*) exit 2 ;;
esac`

func TestNamesThatOnlyGetentKnows(t *testing.T) {
	calls := fakeGetent(t, onlyHere)
	s := NewResolver()
	for network, want := range map[string][]netip.Addr{
		"ip":  {netip.MustParseAddr("127.0.0.9"), netip.MustParseAddr("::1")},
		"ip4": {netip.MustParseAddr("127.0.0.9")}, "ip6": {netip.MustParseAddr("::1")},
	} {
		require.Equal(t, want, proctest.Try(s.Addresses(t.Context(), network, "gpu.invalid")).OK(t))
	}
	var all sync.WaitGroup
	for range 20 {
		all.Go(func() {
			proctest.Try(s.Addresses(t.Context(), "ip", "gpu.invalid")).OK(t)
		})
	}
	all.Wait()
	require.Equal(t, 1, calls(), "one process for all of them")
	require.ErrorContains(t, proctest.Try(s.Addresses(t.Context(), "ip", "nowhere.invalid")).Err, "nowhere.invalid")
}

func TestAddressesThatNeedNoGetent(t *testing.T) {
	calls := fakeGetent(t, "exit 2")
	for _, text := range []string{"127.0.0.1", "::1", "fe80::1%lo"} {
		require.Equal(t, []netip.Addr{netip.MustParseAddr(text)}, proctest.Try(NewResolver().Addresses(t.Context(), "ip", text)).OK(t))
	}
	require.Zero(t, calls())
}

func TestNoGetent(t *testing.T) {
	t.Setenv("PATH", t.TempDir())
	require.ErrorContains(t, proctest.Try(NewResolver().Addresses(t.Context(), "ip", "nowhere.invalid")).Err, "nowhere.invalid")
}

func TestGetentThatHangs(t *testing.T) {
	fakeGetent(t, "exec sleep 60")
	ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
	defer cancel()
	begun := time.Now()
	require.Error(t, proctest.Try(NewResolver().Addresses(ctx, "ip", "gpu.invalid")).Err)
	require.Less(t, time.Since(begun), 30*time.Second)
}

// TestRealGetent: it is asked for what /etc/hosts has, so that the answer can be compared.
func TestRealGetent(t *testing.T) {
	proctest.NeedPrograms(t, "getent")
	require.Contains(t, proctest.Try(NewResolver().ask(t.Context(), "127.0.0.1")).OK(t), netip.MustParseAddr("127.0.0.1"))
}

func FuzzParseHosts(f *testing.F) {
	f.Add([]byte("127.0.0.1       STREAM localhost\n::1 RAW"))
	f.Fuzz(func(t *testing.T, out []byte) {
		for _, a := range parseHosts(out) {
			require.True(t, a.IsValid())
		}
	})
}
