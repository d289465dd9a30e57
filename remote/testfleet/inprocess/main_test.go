package inprocess_test

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net"
	"os"
	"os/signal"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
	"golang.org/x/crypto/ssh"
	"golang.org/x/crypto/ssh/knownhosts"

	"github.com/seed-3119e985/genv/remote/testfleet"
	"github.com/seed-3119e985/genv/remote/testfleet/gpus"
	"github.com/seed-3119e985/genv/remote/testfleet/inprocess"
	"github.com/seed-3119e985/genv/snapshot/proc/proctest"
)

func newMachine(t *testing.T) *testfleet.Machine {
	t.Helper()
	program := proctest.Try(os.Executable()).OK(t)
	m := proctest.Try(testfleet.NewMachine(filepath.Join(t.TempDir(), "host"), gpus.Devices("test", 4, "NVIDIA H100 80GB HBM3", 81559), program)).OK(t)
	t.Cleanup(func() { require.NoError(t, m.Close()) })
	return m
}

// execution is a host whose genv is this test binary.
func execution(t *testing.T) *inprocess.Exec {
	t.Helper()
	program := proctest.Try(os.Executable()).OK(t)
	e := &inprocess.Exec{Machine: newMachine(t)}
	require.NoError(t, e.Machine.Install(program))
	e.Environ = []string{helperVariable + "=1", promptEnd}
	return e
}

func TestExecRunsTheProgram(t *testing.T) {
	fleet := startFleet(t, execution(t))
	client := login(t, fleet, fleet.Hosts()[0])
	for _, c := range []struct {
		line, stdin, stdout string
		status              int
	}{
		{"sudo -n genv args a 'b c' ''", "", "[\"a\" \"b c\" \"\"]\n", 0},
		{"sudo genv args", "", "[]\n", 0},
		{`genv args 'it'\''s' 'a;b' '$HOME'`, "", "[\"it's\" \"a;b\" \"$HOME\"]\n", 0},
		{"genv cat", "both\nlines", "both\nlines", 0},
		{"genv exit 7", "", "", 7},
		{"genv kill-yourself", "", "", 128 + 15},
		{"nvidia-smi -L", "", "", 0},
		{"other args", "", "", 127},
		{"genv args; genv exit 3", "", "", 3},
		{"(", "", "", 2},
	} {
		got := run(t, client, c.line, c.stdin)
		if c.status != 0 {
			require.Equal(t, c.status, status(t, got.err), c.line)
			continue
		}
		require.NoError(t, got.err, c.line)
		if c.stdout != "" {
			require.Equal(t, c.stdout, got.stdout, c.line)
		}
	}
}

func TestExecGivesTheMachinesEnvironmentAndNoOther(t *testing.T) {
	t.Setenv("SECRET_OF_THE_CALLER", "x")
	e := execution(t)
	fleet := startFleet(t, e)
	got := run(t, login(t, fleet, fleet.Hosts()[0]), "genv environ", "")
	require.NoError(t, got.err)
	require.ElementsMatch(t, append(e.Machine.Environ(), append(e.Environ, "PWD="+e.Machine.Dir)...), strings.Fields(got.stdout))
}

func TestACommandEndsWithItsClient(t *testing.T) {
	for name, leave := range map[string]func(*inprocess.Fleet, func()){
		"the client goes": func(_ *inprocess.Fleet, disconnect func()) { disconnect() },
		"the fleet goes":  func(f *inprocess.Fleet, _ func()) { f.Close() },
	} {
		t.Run(name, func(t *testing.T) {
			fleet := startFleet(t, execution(t))
			client := login(t, fleet, fleet.Hosts()[0])
			line := make([]byte, 16)
			n := proctest.Try(started(t, client, "genv stay").Read(line)).OK(t)
			pid := proctest.Try(strconv.Atoi(strings.TrimSpace(string(line[:n])))).OK(t)
			leave(fleet, func() { _ = client.Close() })
			require.Eventually(t, func() bool { return syscall.Kill(pid, 0) == syscall.ESRCH }, patience, time.Millisecond)
		})
	}
}

func TestExecWithoutTheProgram(t *testing.T) {
	m := newMachine(t)
	require.NoError(t, m.Install("/nonexistent/genv"))
	fleet := startFleet(t, &inprocess.Exec{Machine: m})
	got := run(t, login(t, fleet, fleet.Hosts()[0]), "genv usage snapshot", "")
	require.Equal(t, 127, status(t, got.err))
	require.Contains(t, got.stderr, "not found")
}

const patience = 20 * time.Second // bounds what must happen; nothing is measured by it

// greet answers a command with a line that tells what arrived.
var greet = inprocess.Func(func(_ context.Context, r *inprocess.Request) int {
	fmt.Fprintf(r.Stdout, "%s@%s: %s\n", r.User, r.Host, r.Line)
	return 0
})

func startFleet(t *testing.T, handlers ...inprocess.Handler) *inprocess.Fleet {
	t.Helper()
	var hosts []*inprocess.Server
	for i, h := range handlers {
		hosts = append(hosts, &inprocess.Server{Name: fmt.Sprintf("gpu-%02d", i+1), Address: fmt.Sprintf("127.78.0.%d", i+1), Handler: h})
	}
	fleet := proctest.Try(inprocess.Start(t.TempDir(), 0, hosts...)).OK(t)
	t.Cleanup(fleet.Close)
	return fleet
}

// dial logs in with nothing but the files that the fleet wrote.
func dial(t *testing.T, f *inprocess.Fleet, host *inprocess.Server) (*ssh.Client, error) {
	t.Helper()
	key := proctest.ReadFile(t, f.ClientKey())
	signer := proctest.Try(ssh.ParsePrivateKey(key)).OK(t)
	check := proctest.Try(knownhosts.New(f.KnownHosts())).OK(t)
	address := net.JoinHostPort(host.Address, strconv.Itoa(f.Port))
	conn, err := net.DialTimeout("tcp", address, patience)
	if err != nil {
		return nil, err
	}
	t.Cleanup(func() { _ = conn.Close() })
	c, channels, requests, err := ssh.NewClientConn(conn, address, &ssh.ClientConfig{
		User: "someone", Auth: []ssh.AuthMethod{ssh.PublicKeys(signer)}, HostKeyCallback: check,
	})
	if err != nil {
		return nil, err
	}
	return ssh.NewClient(c, channels, requests), nil
}

func login(t *testing.T, f *inprocess.Fleet, host *inprocess.Server) *ssh.Client {
	t.Helper()
	return proctest.Try(dial(t, f, host)).OK(t)
}

// result is what a client sees of a command.
type result struct {
	stdout, stderr string
	err            error
}

func run(t *testing.T, client *ssh.Client, line, stdin string) result {
	t.Helper()
	session := proctest.Try(client.NewSession()).OK(t)
	defer session.Close()
	var stdout, stderr bytes.Buffer
	session.Stdin, session.Stdout, session.Stderr = bytes.NewBufferString(stdin), &stdout, &stderr
	err := session.Run(line)
	return result{stdout.String(), stderr.String(), err}
}

// started is the stdout of a command that runs.
func started(t *testing.T, client *ssh.Client, line string) io.Reader {
	t.Helper()
	session := proctest.Try(client.NewSession()).OK(t)
	stdout := proctest.Try(session.StdoutPipe()).OK(t)
	require.NoError(t, session.Start(line))
	return stdout
}

// status is the exit status that the client was told.
func status(t *testing.T, err error) int {
	t.Helper()
	var exit *ssh.ExitError
	require.ErrorAs(t, err, &exit)
	return exit.ExitStatus()
}

func fleetPort(f *inprocess.Fleet) string { return strconv.Itoa(f.Port) }

const helperVariable = "GENV_SIM_TEST_HELPER" // makes this test binary play a program: the genv of a machine, or a job

const promptEnd = "GORACE=atexit_sleep_ms=0" // spares a program with the race detector its second of waiting at its end

func TestMain(m *testing.M) {
	if filepath.Base(os.Args[0]) == "nvidia-smi" {
		os.Exit(gpus.Main(os.Args[1:], os.Stdout, os.Stderr, os.Getenv))
	}
	if os.Getenv(helperVariable) != "" {
		os.Exit(helper(os.Args[1:]))
	}
	goleak.VerifyTestMain(m)
}

func helper(args []string) int {
	switch args[0] {
	case "args":
		fmt.Printf("%q\n", args[1:])
	case "cat":
		_, _ = io.Copy(os.Stdout, os.Stdin)
	case "environ":
		fmt.Println(strings.Join(os.Environ(), "\n"))
	case "exit":
		fmt.Fprintln(os.Stderr, "on stderr")
		status, _ := strconv.Atoi(args[1])
		return status
	case "kill-yourself":
		_ = syscall.Kill(os.Getpid(), syscall.SIGTERM)
		time.Sleep(time.Minute)
	case "stay": // deaf to everything but SIGKILL
		signal.Ignore(syscall.SIGTERM, syscall.SIGHUP, syscall.SIGPIPE)
		fmt.Println(os.Getpid())
		time.Sleep(time.Minute)
	}
	return 0
}
