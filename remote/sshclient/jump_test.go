package sshclient_test

import (
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/crypto/ssh"

	"github.com/seed-3119e985/genv/remote"
	"github.com/seed-3119e985/genv/remote/sshclient"
	"github.com/seed-3119e985/genv/snapshot/proc/proctest"
)

// jumps is a host behind two jump hosts, each an sshd of its own.
type jumps struct{ first, second, last *sshd }

func startJumps(t *testing.T) jumps {
	j := jumps{startSSHD(t), startSSHD(t), startSSHD(t)}
	for _, s := range []*sshd{j.second, j.last} {
		s.write(t, "authorized", j.first.read(t, "id.pub"))
	}
	j.first.write(t, "all_known", j.first.read(t, "known_hosts")+j.second.read(t, "known_hosts")+j.last.read(t, "known_hosts"))
	return j
}

func (j jumps) config(t *testing.T, lines ...string) string {
	var b strings.Builder
	b.WriteString(strings.Join(lines, "\n") + "\n")
	for name, s := range map[string]*sshd{"first": j.first, "second": j.second, "gpu*": j.last} {
		fmt.Fprintf(&b, "Host %s\n HostName %s\n Port %d\n", name, s.address, s.port)
	}
	fmt.Fprintf(&b, "Host *\n User root\n IdentityFile %s\n IdentityAgent none\n UserKnownHostsFile %s\n GlobalKnownHostsFile /dev/null\n",
		j.first.file("id"), j.first.file("all_known"))
	return write(t, b.String())
}

func logins(t *testing.T, s *sshd) int { return strings.Count(s.read(t, "log"), "Accepted publickey") }

func TestJumps(t *testing.T) {
	j := startJumps(t)
	from := sh("echo $SSH_CONNECTION")
	t.Run("a chain of two, each login shared by all hosts behind it", func(t *testing.T) {
		c := newClient(t, sshclient.Options{ConfigFile: j.config(t, "Host gpu*", " ProxyJump first,second")})
		var all sync.WaitGroup
		for i := range 8 {
			all.Go(func() {
				out := runs(t, c, remote.Host{Name: fmt.Sprintf("gpu-%d", i)}, from)
				require.Contains(t, string(out.Stdout), fmt.Sprint(j.last.port))
			})
		}
		all.Wait()
		require.Equal(t, []int{1, 1, 8}, []int{logins(t, j.first), logins(t, j.second), logins(t, j.last)})
	})
	t.Run("a jump host with a jump host of its own", func(t *testing.T) {
		c := newClient(t, sshclient.Options{ConfigFile: j.config(t, "Host gpu", " ProxyJump second", "Host second", " ProxyJump first")})
		runs(t, c, gpu, from)
	})
	t.Run("with user and port, and an override of the host's address", func(t *testing.T) {
		item := fmt.Sprintf("root@%s:%d", j.first.address, j.first.port)
		c := newClient(t, sshclient.Options{ConfigFile: j.config(t, "Host elsewhere", " ProxyJump "+item)})
		runs(t, c, remote.Host{Name: "elsewhere", Address: j.last.address, Port: j.last.port}, from)
	})
	t.Run("the jump host's key is checked", func(t *testing.T) {
		known := j.first.read(t, "all_known")
		j.first.write(t, "all_known", j.last.read(t, "known_hosts"))
		defer j.first.write(t, "all_known", known)
		before := logins(t, j.first)
		c := newClient(t, sshclient.Options{ConfigFile: j.config(t, "Host gpu", " ProxyJump first")})
		fails(t, c, gpu, from, remote.HostKey, "jump host first")
		require.Equal(t, before, logins(t, j.first))
	})
	t.Run("a jump host that is down", func(t *testing.T) {
		c := newClient(t, sshclient.Options{ConfigFile: j.config(t, "Host gpu", " ProxyJump dead", "Host dead", " HostName 127.0.0.1", " Port 1")})
		fails(t, c, gpu, from, remote.Unreachable, "jump host dead")
	})
	t.Run("a host that is down behind one that is up", func(t *testing.T) {
		c := newClient(t, sshclient.Options{ConfigFile: j.config(t, "Host gpu*", " ProxyJump first")})
		fails(t, c, remote.Host{Name: "gpu", Port: 1}, from, remote.Unreachable)
		runs(t, c, remote.Host{Name: "gpu-2"}, from)
	})
	t.Run("hosts that jump through each other", func(t *testing.T) {
		c := newClient(t, sshclient.Options{ConfigFile: j.config(t, "Host first", " ProxyJump second", "Host second", " ProxyJump first")})
		for _, host := range []string{"first", "second"} {
			fails(t, c, remote.Host{Name: host}, from, remote.Configuration)
		}
	})
	t.Run("ProxyCommand", func(t *testing.T) {
		config := j.config(t, "Host gpu", " ProxyCommand ssh -F %d/../proc/self/cwd/none -W [%h]:%p first")
		config = write(t, strings.Replace(proctest.ReadText(t, config), "%d/../proc/self/cwd/none", j.config(t), 1))
		c := newClient(t, sshclient.Options{ConfigFile: config})
		runs(t, c, gpu, from)
	})
}

// TestJumpHostOfTheFleet: a jump host that is a host of the fleet too has one login, and hosts behind
// it are reached again after it has left the fleet.
func TestJumpHostOfTheFleet(t *testing.T) {
	j := startJumps(t)
	c := newClient(t, sshclient.Options{ConfigFile: j.config(t, "Host gpu*", " ProxyJump first")})
	run := func(hosts ...string) {
		for _, host := range hosts {
			proctest.Try(c.Run(t.Context(), remote.Host{Name: host}, sh("true"))).OK(t, host)
		}
	}
	run("gpu-0", "first", "gpu-1")
	require.Equal(t, []int{1, 2}, []int{logins(t, j.first), logins(t, j.last)})
	c.Forget(remote.Host{Name: "first"})
	run("gpu-0", "gpu-2", "first")
	c.Forget(remote.Host{Name: "gpu-0"})
	run("gpu-0", "first")
}

// A command that runs on a host that leaves the fleet ends as if it were still there, and its connection then.
func TestForgettingDuringACommand(t *testing.T) {
	begun, end := make(chan net.Conn), make(chan bool)
	f := startFake(t, func(f *fake) {
		f.command = func(ch ssh.Channel, _ string, conn net.Conn) {
			begun <- conn
			<-end
			exit(ch, 0)
		}
	})
	c, ended := newClient(t, sshclient.Options{ConfigFile: f.config()}), make(chan error)
	go func() { ended <- proctest.Try(c.Run(t.Context(), gpu, snapshot)).Err }()
	conn := <-begun
	c.Forget(gpu)
	close(end)
	require.NoError(t, <-ended)
	gone := func() bool { return errors.Is(conn.SetDeadline(time.Time{}), net.ErrClosed) }
	require.Eventually(t, gone, 10*time.Second, time.Millisecond)
}

// relay is an address that passes connections on to a server, except those that it
// drops, which is what sshd does at random beyond MaxStartups.
type relay struct {
	port  int
	drops atomic.Int32 // how many more connections to drop
	reset bool         // drop them without the usual farewell
}

func startRelay(t *testing.T, to *sshd) *relay {
	t.Helper()
	listener := proctest.Try(net.Listen("tcp", to.address+":0")).OK(t)
	r := &relay{port: listener.Addr().(*net.TCPAddr).Port}
	var all sync.WaitGroup
	all.Go(func() {
		for conn, err := listener.Accept(); err == nil; conn, err = listener.Accept() {
			all.Go(func() { r.serve(conn.(*net.TCPConn), to.target()) })
		}
	})
	t.Cleanup(func() {
		_ = listener.Close()
		all.Wait()
	})
	return r
}

func (r *relay) serve(conn *net.TCPConn, target string) {
	defer conn.Close()
	if r.drops.Add(-1) >= 0 {
		if r.reset {
			_, _ = conn.Read(make([]byte, 1)) // else a bastion reports that it could not connect
			_ = conn.SetLinger(0)
		}
		return
	}
	onward, err := net.Dial("tcp", target)
	if err != nil {
		return
	}
	var back sync.WaitGroup
	back.Go(func() { _, _ = io.Copy(conn, onward); _ = conn.Close() })
	_, _ = io.Copy(onward, conn)
	_ = onward.Close()
	back.Wait()
}

// TestBusyBastionBehindProxyCommand: what a busy bastion drops is ErrBusy, which
// callers try again, as behind ProxyJump; so is what the host behind it drops.
func TestBusyBastionBehindProxyCommand(t *testing.T) {
	j := startJumps(t)
	bastion, host := startRelay(t, j.first), startRelay(t, j.last)
	known := j.first.read(t, "all_known")
	j.first.write(t, "all_known", known+strings.NewReplacer(
		fmt.Sprint(j.first.port), fmt.Sprint(bastion.port), fmt.Sprint(j.last.port), fmt.Sprint(host.port)).Replace(known))
	inner := j.config(t, "Host bastion", " HostName "+j.first.address, fmt.Sprintf(" Port %d", bastion.port))
	config := j.config(t, "Host gpu", fmt.Sprintf(" Port %d", host.port), " ProxyCommand ssh -F "+inner+" -W [%h]:%p bastion")
	for name, busy := range map[string]*relay{"the bastion": bastion, "the host": host} {
		for _, reset := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s, reset %v", name, reset), func(t *testing.T) {
				busy.reset = reset
				busy.drops.Store(2)
				c := newClient(t, sshclient.Options{ConfigFile: config})
				for range 2 {
					err := failure(t, c, gpu, sh("true"), remote.Unreachable)
					require.ErrorIs(t, err, remote.ErrBusy)
					require.ErrorContains(t, err, "MaxStartups")
				}
				runs(t, c, gpu, sh("true"))
			})
		}
	}
	t.Run("a bastion that is down is not busy", func(t *testing.T) {
		c := newClient(t, sshclient.Options{ConfigFile: j.config(t, "Host gpu", " ProxyCommand ssh -F "+inner+" -p 1 -W [%h]:%p bastion")})
		err := failure(t, c, gpu, sh("true"), remote.Unreachable)
		require.NotErrorIs(t, err, remote.ErrBusy)
		require.ErrorContains(t, err, "refused")
	})
}

// TestFailingProxyCommands: what fails every time is not worth another try.
func TestFailingProxyCommands(t *testing.T) {
	f := startFake(t, nil)
	for command, busy := range map[string]bool{
		"exit 1": false, "echo no way >&2; exit 1": false, "kill -9 $$": false, "exec nosuchprogram": false, "echo Connection reset by peer >&2; exit 255": false,
		"echo Connection reset by UNKNOWN port -1 >&2; exit 255": true,
		"true": true, "echo kex_exchange_identification: Connection closed by remote host >&2; exit 255": true,
	} {
		t.Run(command, func(t *testing.T) {
			c := newClient(t, sshclient.Options{ConfigFile: f.config("ProxyCommand sh -c '" + command + "'")})
			err := failure(t, c, gpu, snapshot, remote.Unreachable)
			require.Equal(t, busy, errors.Is(err, remote.ErrBusy), "%v", err)
		})
	}
}

// asNamed has known_hosts know the fake by another name.
func (f *fake) asNamed(name string) {
	line := fmt.Sprintf("[%s]:%d %s", name, f.address().Port, strings.TrimSpace(string(ssh.MarshalAuthorizedKey(f.key.PublicKey()))))
	require.NoError(f.t, os.WriteFile(filepath.Join(f.dir, "known_hosts"), []byte(line+"\n"), 0o600))
}

// TestNameThatOnlyNSSKnows: mDNS, sssd and LDAP are beyond Go's resolver, so getent
// is asked, for a login and for a probe.
func TestNameThatOnlyNSSKnows(t *testing.T) {
	f := startFake(t, nil)
	f.asNamed("gpu.mdns.invalid")
	dir := t.TempDir()
	getent := fmt.Sprintf("#!/bin/sh\n[ \"$1 $3\" = 'ahosts gpu.mdns.invalid' ] && echo '%s STREAM gpu'\n", f.address().IP)
	require.NoError(t, proctest.WriteProgram(filepath.Join(dir, "getent"), []byte(getent)))
	host := remote.Host{Name: "gpu", Address: "gpu.mdns.invalid", Port: f.address().Port}
	config := f.config()
	err := failure(t, newClient(t, sshclient.Options{ConfigFile: config}), host, snapshot, remote.Unreachable)
	require.Contains(t, remote.NextStepOf(err), "correct the name", "the host may well be up")

	t.Setenv("PATH", dir+":"+os.Getenv("PATH"))
	c := newClient(t, sshclient.Options{ConfigFile: config})
	runs(t, c, host, snapshot)
	require.NoError(t, c.Probe(t.Context(), host))
	host.Address = "elsewhere.mdns.invalid"
	fails(t, c, host, snapshot, remote.Unreachable)
}

// TestLocalAddresses: the address to connect from is the one that ssh would choose.
func TestLocalAddresses(t *testing.T) {
	var from atomic.Value
	f := startFake(t, func(f *fake) {
		f.accept = func(conn net.Conn, _ int32) bool {
			from.Store(conn.RemoteAddr().(*net.TCPAddr).IP.String())
			return true
		}
	})
	for line, want := range map[string]string{
		"BindAddress localhost": "127.0.0.1", "BindAddress 127.0.0.9": "127.0.0.9", "BindAddress 127.9": "127.0.0.9",
		"BindInterface lo": "127.0.0.1", "BindAddress 127.0.0.9\nBindInterface none-0": "127.0.0.9",
	} {
		t.Run(line, func(t *testing.T) {
			c := newClient(t, sshclient.Options{ConfigFile: f.config(line)})
			require.NoError(t, c.Probe(t.Context(), gpu))
			runs(t, c, gpu, snapshot)
			require.Equal(t, want, from.Load())
		})
	}
	for _, line := range []string{"BindAddress nowhere.invalid", "BindAddress ::1", "BindInterface none-0"} {
		t.Run(line, func(t *testing.T) {
			c := newClient(t, sshclient.Options{ConfigFile: f.config(line), ConnectTimeout: 3 * time.Second})
			require.ErrorIs(t, c.Probe(t.Context(), gpu), remote.ErrNoProbe, "a login says what is wrong")
			fails(t, c, gpu, snapshot, remote.Configuration, strings.Fields(line)[0])
		})
	}
}

// TestSpellingsOfAddresses: what getaddrinfo(3) takes for an address is one here, and
// known_hosts has it in its usual spelling.
func TestSpellingsOfAddresses(t *testing.T) {
	f := startFake(t, nil)
	ip := f.address().IP.To4()
	for _, name := range []string{
		fmt.Sprintf("%d.%d", ip[0], int(ip[1])<<16|int(ip[2])<<8|int(ip[3])), fmt.Sprintf("0x%x", []byte(ip)), fmt.Sprintf("0%o.%d.%d.%d", ip[0], ip[1], ip[2], ip[3]),
	} {
		c := newClient(t, sshclient.Options{ConfigFile: f.config()})
		proctest.Try(c.Run(t.Context(), remote.Host{Name: name, Port: f.address().Port}, snapshot)).OK(t, name)
		require.NoError(t, c.Probe(t.Context(), remote.Host{Name: name, Port: f.address().Port}), name)
	}
}

// TestIPv6Zone: an address with a zone, by name and by number.
func TestIPv6Zone(t *testing.T) {
	listener, err := net.Listen("tcp6", "[::1]:0")
	proctest.Need(t, err == nil, "IPv6 on the loopback")
	f := startFake(t, func(f *fake) {
		_ = f.listener.Close()
		f.listener = listener
	})
	lo, err := net.InterfaceByName("lo")
	proctest.Need(t, err == nil, "a loopback interface that is called lo")
	for _, zone := range []string{"lo", fmt.Sprint(lo.Index)} {
		host := remote.Host{Name: "gpu", Address: "::1%" + zone, Port: f.address().Port}
		f.asNamed(host.Address)
		c := newClient(t, sshclient.Options{ConfigFile: f.config()})
		require.NoError(t, c.Probe(t.Context(), host))
		runs(t, c, host, snapshot)
	}
}

// TestOneAddressThatAnswers: a name with several addresses connects to the one where sshd is.
func TestOneAddressThatAnswers(t *testing.T) {
	f := startFake(t, nil)
	f.asNamed("gpu.mdns.invalid")
	dir := t.TempDir()
	getent := fmt.Sprintf("#!/bin/sh\nfor a in 127.77.251.1 127.77.251.2 %s 127.77.251.3; do echo \"$a STREAM gpu\"; done\n", f.address().IP)
	require.NoError(t, proctest.WriteProgram(filepath.Join(dir, "getent"), []byte(getent)))
	t.Setenv("PATH", dir+":"+os.Getenv("PATH"))
	c := newClient(t, sshclient.Options{ConfigFile: f.config()})
	runs(t, c, remote.Host{Name: "gpu", Address: "gpu.mdns.invalid", Port: f.address().Port}, snapshot)
	peer, known := c.Peer(remote.Host{Name: "gpu", Address: "gpu.mdns.invalid", Port: f.address().Port})
	require.True(t, known)
	require.Equal(t, f.address().String(), peer.Address)
}
