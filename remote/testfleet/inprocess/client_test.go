package inprocess_test

import (
	"bytes"
	"context"
	"fmt"
	"net"
	"os"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/crypto/ssh"
	"golang.org/x/crypto/ssh/knownhosts"

	"github.com/seed-3119e985/genv/remote/testfleet/inprocess"
)

// patience bounds what must happen; nothing is measured by it.
const patience = 20 * time.Second

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
	fleet, err := inprocess.Start(t.TempDir(), 0, hosts...)
	require.NoError(t, err)
	t.Cleanup(fleet.Close)
	return fleet
}

// dial logs in with nothing but the files that the fleet wrote.
func dial(t *testing.T, f *inprocess.Fleet, host *inprocess.Server) (*ssh.Client, error) {
	t.Helper()
	key, err := os.ReadFile(f.ClientKey())
	require.NoError(t, err)
	signer, err := ssh.ParsePrivateKey(key)
	require.NoError(t, err)
	check, err := knownhosts.New(f.KnownHosts())
	require.NoError(t, err)
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
	client, err := dial(t, f, host)
	require.NoError(t, err)
	return client
}

// result is what a client sees of a command.
type result struct {
	stdout, stderr string
	err            error
}

func run(t *testing.T, client *ssh.Client, line, stdin string) result {
	t.Helper()
	session, err := client.NewSession()
	require.NoError(t, err)
	defer session.Close()
	var stdout, stderr bytes.Buffer
	session.Stdin, session.Stdout, session.Stderr = bytes.NewBufferString(stdin), &stdout, &stderr
	err = session.Run(line)
	return result{stdout.String(), stderr.String(), err}
}

// status is the exit status that the client was told.
func status(t *testing.T, err error) int {
	t.Helper()
	var exit *ssh.ExitError
	require.ErrorAs(t, err, &exit)
	return exit.ExitStatus()
}

func fleetPort(f *inprocess.Fleet) string { return strconv.Itoa(f.Port) }
