package inprocess_test

import (
	"context"
	"crypto/sha256"
	"errors"
	"io"
	"net"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/crypto/ssh"

	"github.com/seed-3119e985/genv/remote/testfleet/inprocess"
)

// alphabet answers every command with 26 bytes.
var alphabet = inprocess.Func(func(_ context.Context, r *inprocess.Request) int {
	_, _ = io.WriteString(r.Stdout, "abcdefghijklmnopqrstuvwxyz")
	return 0
})

func faulty(t *testing.T, faults inprocess.Faults) (*inprocess.Fleet, *inprocess.Server) {
	t.Helper()
	fleet := startFleet(t, alphabet)
	host := fleet.Hosts()[0]
	require.NoError(t, host.Inject(faults))
	return fleet, host
}

func TestDownRefusesUntilItIsHealed(t *testing.T) {
	fleet, host := faulty(t, inprocess.Faults{Down: true})
	_, err := dial(t, fleet, host)
	require.ErrorContains(t, err, "refused")
	require.NoError(t, host.Inject(inprocess.Faults{}))
	require.NoError(t, run(t, login(t, fleet, host), "x", "").err)
}

func TestSilentSaysNothing(t *testing.T) {
	fleet, host := faulty(t, inprocess.Faults{Silent: true})
	conn, err := net.Dial("tcp", net.JoinHostPort(host.Address, fleetPort(fleet)))
	require.NoError(t, err)
	defer conn.Close()
	require.NoError(t, conn.SetReadDeadline(time.Now().Add(50*time.Millisecond)))
	n, err := conn.Read(make([]byte, 1))
	require.Zero(t, n)
	require.ErrorContains(t, err, "timeout")
}

func TestAuthRefused(t *testing.T) {
	fleet, host := faulty(t, inprocess.Faults{AuthRefused: true})
	_, err := dial(t, fleet, host)
	require.ErrorContains(t, err, "unable to authenticate")
}

func TestGarbageComesBeforeTheOutput(t *testing.T) {
	fleet, host := faulty(t, inprocess.Faults{Before: "Last login\n"})
	got := run(t, login(t, fleet, host), "x", "")
	require.NoError(t, got.err)
	require.Equal(t, "Last login\nabcdefghijklmnopqrstuvwxyz", got.stdout)
}

func TestFloodIsTheSameEachTime(t *testing.T) {
	var sums [2][sha256.Size]byte
	for i := range sums {
		fleet, host := faulty(t, inprocess.Faults{Flood: 1 << 20, FloodStderr: 1 << 16})
		got := run(t, login(t, fleet, host), "x", "")
		require.NoError(t, got.err)
		require.Len(t, got.stdout, 1<<20+26)
		require.Len(t, got.stderr, 1<<16)
		sums[i] = sha256.Sum256([]byte(got.stdout + got.stderr))
		fleet.Close()
	}
	require.Equal(t, sums[0], sums[1])
}

func TestDropEndsTheConnectionAtTheByte(t *testing.T) {
	for _, n := range []int{0, 1, 25, 26} {
		fleet, host := faulty(t, inprocess.Faults{BreakAfter: new(int64(n))})
		client := login(t, fleet, host)
		got := run(t, client, "x", "")
		var missing *ssh.ExitMissingError
		require.True(t, errors.As(got.err, &missing) || errors.Is(got.err, io.EOF), "%d: %v", n, got.err)
		require.Equal(t, "abcdefghijklmnopqrstuvwxyz"[:n], got.stdout)
		_ = client.Wait() // returns: the connection has ended
		fleet.Close()
	}
	fleet, host := faulty(t, inprocess.Faults{BreakAfter: new(int64(27))}) // never reached
	require.NoError(t, run(t, login(t, fleet, host), "x", "").err)
}

func TestFreezeKeepsTheConnectionAndSaysNothingMore(t *testing.T) {
	fleet, host := faulty(t, inprocess.Faults{BreakAfter: new(int64(3)), Freezes: true})
	client := login(t, fleet, host)
	session, err := client.NewSession()
	require.NoError(t, err)
	stdout, err := session.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, session.Start("x"))
	head := make([]byte, 3)
	_, err = io.ReadFull(stdout, head)
	require.NoError(t, err)
	require.Equal(t, "abc", string(head))
	answered := make(chan error, 1)
	go func() {
		_, _, err := client.SendRequest("keepalive@openssh.com", true, nil)
		answered <- err
	}()
	select {
	case err := <-answered:
		t.Fatalf("a frozen host answered: %v", err)
	case <-time.After(50 * time.Millisecond):
	}
	require.NoError(t, client.Close())
	require.Error(t, <-answered)
}

func TestSlowAnswersInTheEnd(t *testing.T) {
	fleet, host := faulty(t, inprocess.Faults{Delay: 30 * time.Millisecond})
	require.True(t, strings.HasPrefix(run(t, login(t, fleet, host), "x", "").stdout, "abc"))
}

func TestNoExitLeavesTheOutcomeOpen(t *testing.T) {
	fleet, host := faulty(t, inprocess.Faults{NoExit: true})
	got := run(t, login(t, fleet, host), "x", "")
	var missing *ssh.ExitMissingError
	require.ErrorAs(t, got.err, &missing)
	require.Len(t, got.stdout, 26)
}

// A fleet of a soak runs for days: nothing stays of a frozen connection when its client has gone.
func TestAFrozenConnectionEndsWithItsClient(t *testing.T) {
	fleet, host := faulty(t, inprocess.Faults{BreakAfter: new(int64(3)), Freezes: true})
	before := runtime.NumGoroutine()
	for range 5 {
		client := login(t, fleet, host)
		session, err := client.NewSession()
		require.NoError(t, err)
		stdout, err := session.StdoutPipe()
		require.NoError(t, err)
		require.NoError(t, session.Start("x"))
		_, err = io.ReadFull(stdout, make([]byte, 3))
		require.NoError(t, err)
		require.NoError(t, client.Close())
	}
	require.Eventually(t, func() bool { return runtime.NumGoroutine() <= before+1 }, patience, 10*time.Millisecond, "Eventually's own is one more")
}

func TestCutEndsTheConnectionsThatAreOpen(t *testing.T) {
	fleet := startFleet(t, greet, greet)
	first, other := login(t, fleet, fleet.Hosts()[0]), login(t, fleet, fleet.Hosts()[1])
	for range 2 {
		fleet.Hosts()[0].Cut()
		require.Error(t, first.Wait())
		first = login(t, fleet, fleet.Hosts()[0])
	}
	_, _, err := other.SendRequest("keepalive@openssh.com", true, nil)
	require.NoError(t, err)
}

func TestCloseEndsWhatIsUnderWay(t *testing.T) {
	for name, fault := range map[string]inprocess.Faults{
		"noisy": {Before: "x"}, "silent": {Silent: true}, "frozen": {BreakAfter: new(int64(0)), Freezes: true}, "slow": {Delay: time.Hour}, "endless": {Flood: 1 << 50},
	} {
		t.Run(name, func(t *testing.T) {
			fleet, host := faulty(t, fault)
			conn, err := net.Dial("tcp", net.JoinHostPort(host.Address, fleetPort(fleet)))
			require.NoError(t, err)
			defer conn.Close()
			if name != "silent" {
				session, err := login(t, fleet, host).NewSession()
				require.NoError(t, err)
				require.NoError(t, session.Start("x"))
			}
			fleet.Close() // must return; goleak looks for what is left
		})
	}
}
