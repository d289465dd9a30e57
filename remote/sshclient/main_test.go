package sshclient_test

import (
	"crypto/ed25519"
	"crypto/rand"
	"encoding/pem"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"text/tabwriter"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
	"golang.org/x/crypto/ssh"

	"github.com/seed-3119e985/genv/remote"
	"github.com/seed-3119e985/genv/remote/sshclient"
	"github.com/seed-3119e985/genv/snapshot/proc/proctest"
)

func TestMain(m *testing.M) {
	if os.Getenv("GENV_TEST_SERVE") != "" {
		serve()
		os.Exit(0)
	}
	goleak.VerifyTestMain(m, goleak.Cleanup(func(code int) {
		if err := observed.print(); err != nil {
			fmt.Fprintln(os.Stderr, err)
			code = 1
		}
		os.Exit(code)
	}))
}

// observed is the table of faults and what an administrator sees of them. It is
// written to the file that GENV_FAULT_TABLE names.
var observed table

type table struct {
	mu   sync.Mutex
	rows []string
}

func (o *table) last() string {
	if len(o.rows) == 0 {
		return ""
	}
	return o.rows[len(o.rows)-1]
}

func (o *table) print() error {
	name := os.Getenv("GENV_FAULT_TABLE")
	if name == "" {
		return nil
	}
	file, err := os.Create(name)
	if err != nil {
		return err
	}
	w := tabwriter.NewWriter(file, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "FAULT\tCLASS\tOBSERVED")
	for _, row := range o.rows {
		fmt.Fprintln(w, row)
	}
	if err := w.Flush(); err != nil {
		return err
	}
	return file.Close()
}

// requireClass fails unless err is of the class and has the texts in it, and notes what was observed.
// The class "" is for success.
func requireClass(t testing.TB, class remote.Class, err error, texts ...string) {
	t.Helper()
	if class == "" {
		require.NoError(t, err)
		return
	}
	require.Error(t, err)
	observed.mu.Lock()
	if row := fmt.Sprintf("%s\t%s\t%s", t.Name(), remote.ClassOf(err), err); !strings.HasPrefix(observed.last(), t.Name()+"\t") {
		observed.rows = append(observed.rows, row)
	}
	observed.mu.Unlock()
	require.Equal(t, class, remote.ClassOf(err), "%v", err)
	require.NotEmpty(t, remote.ClassOf(err).NextStep())
	for _, text := range texts {
		require.ErrorContains(t, err, text)
	}
}

// runs has a host run a command that succeeds.
func runs(t testing.TB, c *sshclient.Client, h remote.Host, command remote.Command) remote.Output {
	t.Helper()
	return proctest.Try(c.Run(t.Context(), h, command)).OK(t)
}

// fails has a host run a command, which fails with the class and the texts.
func fails(t testing.TB, c *sshclient.Client, h remote.Host, command remote.Command, class remote.Class,
	texts ...string,
) {
	t.Helper()
	_ = failure(t, c, h, command, class, texts...)
}

// failure is the error of such a command.
func failure(t testing.TB, c *sshclient.Client, h remote.Host, command remote.Command, class remote.Class,
	texts ...string,
) error {
	t.Helper()
	_, err := c.Run(t.Context(), h, command)
	requireClass(t, class, err, texts...)
	return err
}

// fake is an in-process host that can misbehave.
type fake struct {
	t        testing.TB
	dir      string
	listener net.Listener
	key      ssh.Signer    // the host's
	login    ssh.Signer    // the user's, in dir/id
	stop     chan struct{} // closed at the end of the test
	conns    atomic.Int32
	logins   atomic.Int32 // attempts at authentication
	all      sync.WaitGroup

	mu   sync.Mutex
	open map[net.Conn]bool

	// accept, if set, has a new connection first, with its number from 1; false means that it is done with it.
	accept    func(conn net.Conn, number int32) bool
	refuse    bool          // refuses every key; also is one more that is taken
	accepting time.Duration // how long it takes to accept a key
	also      ssh.PublicKey
	session   func(number int32) bool                          // if set, tells whether a session is refused
	command   func(ch ssh.Channel, line string, conn net.Conn) // what a command does; the channel is closed after it
	why       string                                           // sent when a key is refused, as PAM's messages are
	banner    string                                           // sent before the login
}

func newKey(t testing.TB) (ssh.Signer, []byte) {
	t.Helper()
	_, private, err := ed25519.GenerateKey(rand.Reader)
	require.NoError(t, err)
	signer := proctest.Try(ssh.NewSignerFromKey(private)).OK(t)
	block := proctest.Try(ssh.MarshalPrivateKey(private, "")).OK(t)
	return signer, pem.EncodeToMemory(block)
}

// startFake serves on an address of its own until the test ends.
func startFake(t testing.TB, prepare func(*fake)) *fake {
	t.Helper()
	f := &fake{t: t, dir: t.TempDir(), open: map[net.Conn]bool{}, stop: make(chan struct{})}
	f.command = func(ch ssh.Channel, _ string, _ net.Conn) { exit(ch, 0) }
	f.key, _ = newKey(t)
	login, file := newKey(t)
	f.login = login
	require.NoError(t, os.WriteFile(filepath.Join(f.dir, "id"), file, 0o600))
	f.listener = proctest.Try(net.Listen("tcp", freshAddress()+":0")).OK(t)
	f.known(f.key.PublicKey())
	if prepare != nil {
		prepare(f)
	}
	f.all.Go(f.serve)
	t.Cleanup(func() {
		close(f.stop)
		_ = f.listener.Close()
		f.drop()
		f.all.Wait()
	})
	return f
}

func (f *fake) address() *net.TCPAddr { return f.listener.Addr().(*net.TCPAddr) }

// known has known_hosts know these keys alone.
func (f *fake) known(keys ...ssh.PublicKey) {
	text := ""
	for _, key := range keys {
		text += fmt.Sprintf("[%s]:%d %s", f.address().IP, f.address().Port, ssh.MarshalAuthorizedKey(key))
	}
	require.NoError(f.t, os.WriteFile(filepath.Join(f.dir, "known_hosts"), []byte(text), 0o600))
}

// config is an ssh_config that reaches the fake as "gpu".
func (f *fake) config(lines ...string) string {
	text := strings.Join(lines, "\n") + fmt.Sprintf(`
Host gpu gpu-*
  HostName %s
  Port %d
Host *
  User alice
  IdentityFile %s/id
  IdentityAgent none
  UserKnownHostsFile %s/known_hosts
  GlobalKnownHostsFile /dev/null
`, f.address().IP, f.address().Port, f.dir, f.dir)
	name := filepath.Join(f.dir, fmt.Sprintf("config-%d", lastAddress.Add(1)))
	require.NoError(f.t, os.WriteFile(name, []byte(text), 0o600))
	return name
}

func (f *fake) drop() {
	f.mu.Lock()
	defer f.mu.Unlock()
	for conn := range f.open {
		_ = conn.Close()
	}
}

func (f *fake) serve() {
	for {
		conn, err := f.listener.Accept()
		if err != nil {
			return
		}
		number := f.conns.Add(1)
		f.mu.Lock()
		f.open[conn] = true
		f.mu.Unlock()
		f.all.Go(func() {
			defer func() { _ = conn.Close() }()
			if f.accept == nil || f.accept(conn, number) {
				f.handle(conn)
			}
		})
	}
}

func (f *fake) handle(conn net.Conn) {
	config := &ssh.ServerConfig{
		PublicKeyCallback: func(_ ssh.ConnMetadata, key ssh.PublicKey) (*ssh.Permissions, error) {
			f.logins.Add(1)
			time.Sleep(f.accepting)
			for _, good := range []ssh.PublicKey{f.login.PublicKey(), f.also} {
				if !f.refuse && good != nil && string(key.Marshal()) == string(good.Marshal()) {
					return nil, nil
				}
			}
			if f.why != "" {
				return nil, &ssh.BannerError{Err: errors.New("no"), Message: f.why}
			}
			return nil, errors.New("no")
		},
		BannerCallback: func(ssh.ConnMetadata) string { return f.banner },
	}
	config.AddHostKey(f.key)
	_, channels, requests, err := ssh.NewServerConn(conn, config)
	if err != nil {
		return
	}
	f.all.Go(func() { ssh.DiscardRequests(requests) })
	var number int32
	for channel := range channels {
		number++
		if f.session != nil && f.session(number) {
			_ = channel.Reject(ssh.ConnectionFailed, "open failed")
			continue
		}
		if ch, requests, err := channel.Accept(); err == nil {
			f.all.Go(func() { f.run(ch, requests, conn) })
		}
	}
}

func (f *fake) run(ch ssh.Channel, requests <-chan *ssh.Request, conn net.Conn) {
	for r := range requests {
		if r.Type != "exec" {
			_ = r.Reply(false, nil)
			continue
		}
		var exec struct{ Line string }
		_ = ssh.Unmarshal(r.Payload, &exec)
		if exec.Line == "refused" {
			_ = r.Reply(false, nil)
			continue
		}
		_ = r.Reply(true, nil)
		f.all.Go(func() {
			f.command(ch, exec.Line, conn)
			_ = ch.Close()
		})
	}
	_ = ch.Close() // the client has closed its side
}

// hang is a command that never ends by itself.
func (f *fake) hang(ssh.Channel, string, net.Conn) { <-f.stop }

func exit(ch ssh.Channel, status uint32) {
	_, _ = ch.SendRequest("exit-status", false, ssh.Marshal(struct{ Status uint32 }{status}))
}

// says is a command that writes to stderr and exits.
func says(stderr string, status uint32) func(ssh.Channel, string, net.Conn) {
	return func(ch ssh.Channel, _ string, _ net.Conn) {
		_, _ = ch.Stderr().Write([]byte(stderr))
		exit(ch, status)
	}
}
