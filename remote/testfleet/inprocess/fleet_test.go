package inprocess_test

import (
	"cmp"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/crypto/ssh"
	"golang.org/x/sync/errgroup"

	"github.com/seed-3119e985/genv/remote/testfleet/inprocess"
	"github.com/seed-3119e985/genv/snapshot/proc/proctest"
)

func TestCommandsReachTheHostThatWasAsked(t *testing.T) {
	fleet := startFleet(t, greet, greet)
	for _, host := range fleet.Hosts() {
		client := login(t, fleet, host)
		for _, line := range []string{"genv usage snapshot", "a 'b c'"} { // one connection, several sessions
			got := run(t, client, line, "")
			require.NoError(t, got.err)
			require.Equal(t, fmt.Sprintf("someone@%s: %s\n", host.Name, line), got.stdout)
		}
		require.Equal(t, inprocess.Totals{Connections: 1, Logins: 1, Commands: 2}, host.Counts())
	}
	require.Nil(t, fleet.Host("gpu-99"))
}

func TestStreamsAndStatusAreTheCommands(t *testing.T) {
	fleet := startFleet(t, inprocess.Func(func(_ context.Context, r *inprocess.Request) int {
		n, _ := io.Copy(r.Stdout, r.Stdin)
		fmt.Fprintf(r.Stderr, "%d bytes", n)
		return 42
	}))
	sent := strings.Repeat("0123456789abcdef", 1<<18) // 4 MiB: more than two windows
	got := run(t, login(t, fleet, fleet.Hosts()[0]), "x", sent)
	require.Equal(t, 42, status(t, got.err))
	require.True(t, got.stdout == sent, "stdin came back changed")
	require.Equal(t, "4194304 bytes", got.stderr)
}

func TestEleventhSessionIsRefused(t *testing.T) {
	fleet := startFleet(t, inprocess.Func(func(ctx context.Context, _ *inprocess.Request) int {
		<-ctx.Done()
		return 0
	}))
	client := login(t, fleet, fleet.Hosts()[0])
	for range 10 {
		started(t, client, "wait")
	}
	_, err := client.NewSession()
	var refused *ssh.OpenChannelError
	require.ErrorAs(t, err, &refused)
	require.Equal(t, ssh.ConnectionFailed, refused.Reason)
}

func TestKeepAliveIsAnswered(t *testing.T) {
	fleet := startFleet(t, greet)
	client := login(t, fleet, fleet.Hosts()[0])
	for range 3 {
		ok, _, err := client.SendRequest("keepalive@openssh.com", true, nil)
		require.NoError(t, err)
		require.False(t, ok) // "unknown request" is an answer
	}
}

func TestOnlyExecIsServed(t *testing.T) {
	fleet := startFleet(t, greet)
	client := login(t, fleet, fleet.Hosts()[0])
	session := proctest.Try(client.NewSession()).OK(t)
	defer session.Close()
	require.Error(t, session.RequestPty("xterm", 24, 80, nil))
	require.Error(t, session.RequestSubsystem("sftp"))
	require.Error(t, session.Shell())
	require.Zero(t, fleet.Hosts()[0].Counts().Commands)
}

func TestOnlyTheClientKeyIsAccepted(t *testing.T) {
	fleet, other := startFleet(t, greet), t.TempDir()
	stranger := proctest.Try(inprocess.Start(other, 0, &inprocess.Server{Name: "x", Address: "127.78.1.1", Handler: greet})).OK(t)
	defer stranger.Close()
	key := proctest.ReadFile(t, stranger.ClientKey())
	require.NoError(t, os.WriteFile(fleet.ClientKey(), key, 0o600))
	require.ErrorContains(t, proctest.Try(dial(t, fleet, fleet.Hosts()[0])).Err, "unable to authenticate")
}

func TestOpenSSHUsesTheFleet(t *testing.T) {
	proctest.NeedSSH(t)
	fleet := startFleet(t, greet, greet)
	for _, line := range []string{"gpu-01", "gpu-02"} {
		out := proctest.Output(t, exec.Command("ssh", "-F", fleet.SSHConfig(), line, "genv", "usage"))
		require.Equal(t, "admin@"+line+": genv usage\n", out)
	}
}

func TestAThousandHosts(t *testing.T) {
	var hosts []*inprocess.Server
	for i := range 1000 {
		hosts = append(hosts, &inprocess.Server{
			Name: fmt.Sprintf("gpu-%04d", i), Address: fmt.Sprintf("127.79.%d.%d", i/250, i%250+1), Handler: greet,
		})
	}
	fleet := proctest.Try(inprocess.Start(t.TempDir(), 0, hosts...)).OK(t)
	defer fleet.Close()
	var group errgroup.Group
	group.SetLimit(16)
	for _, host := range fleet.Hosts()[:100] { // logging in to all takes this machine too long
		group.Go(func() error {
			require.Contains(t, run(t, login(t, fleet, host), "x", "").stdout, host.Name)
			return nil
		})
	}
	require.NoError(t, group.Wait())
}

func TestStartRefuses(t *testing.T) {
	good := func() *inprocess.Server { return &inprocess.Server{Name: "a", Address: "127.78.2.1", Handler: greet} }
	busy := proctest.Try(net.Listen("tcp", "127.78.2.2:0")).OK(t)
	defer busy.Close()
	for name, c := range map[string]struct {
		dir   string
		hosts []*inprocess.Server
		want  string
	}{
		"no hosts":                   {want: "at least one"},
		"a name twice":               {hosts: []*inprocess.Server{good(), good()}, want: "twice"},
		"no handler":                 {hosts: []*inprocess.Server{{Name: "a"}}, want: "handler"},
		"a foreign address":          {hosts: []*inprocess.Server{{Name: "a", Address: "192.0.2.1", Handler: greet}}, want: "192.0.2.1"},
		"a folder that is not there": {dir: "/dev/null/none", hosts: []*inprocess.Server{good()}, want: "/dev/null/none"},
	} {
		require.ErrorContains(t, proctest.Try(inprocess.Start(cmp.Or(c.dir, t.TempDir()), 0, c.hosts...)).Err, c.want, name)
	}
	taken := &inprocess.Server{Name: "b", Address: "127.78.2.2", Handler: greet}
	require.ErrorIs(t, proctest.Try(inprocess.Start(t.TempDir(), busy.Addr().(*net.TCPAddr).Port, good(), taken)).Err, inprocess.ErrPortInUse)
}

func TestFilesAreForTheCallerAlone(t *testing.T) {
	fleet := startFleet(t, greet)
	for _, path := range []string{fleet.ClientKey(), fleet.KnownHosts(), fleet.SSHConfig()} {
		info := proctest.Try(os.Stat(path)).OK(t)
		require.Equal(t, os.FileMode(0o600), info.Mode(), path)
	}
}

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
	conn := proctest.Try(net.Dial("tcp", net.JoinHostPort(host.Address, fleetPort(fleet)))).OK(t)
	defer conn.Close()
	require.NoError(t, conn.SetReadDeadline(time.Now().Add(50*time.Millisecond)))
	n, err := conn.Read(make([]byte, 1))
	require.Zero(t, n)
	require.ErrorContains(t, err, "timeout")
}

func TestAuthRefused(t *testing.T) {
	fleet, host := faulty(t, inprocess.Faults{AuthRefused: true})
	require.ErrorContains(t, proctest.Try(dial(t, fleet, host)).Err, "unable to authenticate")
}

func TestAnswersWithFaults(t *testing.T) {
	const answer = "abcdefghijklmnopqrstuvwxyz"
	for want, faults := range map[string]inprocess.Faults{
		"Last login\n" + answer: {Before: "Last login\n"},
		answer:                  {Delay: 30 * time.Millisecond},
		"no exit " + answer:     {NoExit: true, Before: "no exit "},
	} {
		fleet, host := faulty(t, faults)
		got := run(t, login(t, fleet, host), "x", "")
		require.Equal(t, want, got.stdout)
		var missing *ssh.ExitMissingError
		require.Equal(t, faults.NoExit, errors.As(got.err, &missing), want)
		require.Equal(t, faults.NoExit, got.err != nil, want)
		fleet.Close()
	}
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
	head := make([]byte, 3)
	proctest.Try(io.ReadFull(started(t, client, "x"), head)).OK(t)
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

// A fleet of a soak runs for days: nothing stays of a frozen connection when its client has gone.
func TestAFrozenConnectionEndsWithItsClient(t *testing.T) {
	fleet, host := faulty(t, inprocess.Faults{BreakAfter: new(int64(3)), Freezes: true})
	before := runtime.NumGoroutine()
	for range 5 {
		client := login(t, fleet, host)
		proctest.Try(io.ReadFull(started(t, client, "x"), make([]byte, 3))).OK(t)
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
			conn := proctest.Try(net.Dial("tcp", net.JoinHostPort(host.Address, fleetPort(fleet)))).OK(t)
			defer conn.Close()
			if name != "silent" {
				started(t, login(t, fleet, host), "x")
			}
			fleet.Close() // must return; goleak looks for what is left
		})
	}
}
