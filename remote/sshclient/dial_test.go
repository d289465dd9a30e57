package sshclient_test

import (
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/crypto/ssh"

	"github.com/seed-3119e985/genv/remote"
	"github.com/seed-3119e985/genv/remote/sshclient"
	"github.com/seed-3119e985/genv/snapshot/proc/proctest"
)

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
	_, err := newClient(t, sshclient.Options{ConfigFile: config}).Run(t.Context(), host, snapshot)
	requireClass(t, remote.Unreachable, err)
	require.Contains(t, remote.NextStepOf(err), "correct the name", "the host may well be up")

	t.Setenv("PATH", dir+":"+os.Getenv("PATH"))
	c := newClient(t, sshclient.Options{ConfigFile: config})
	_, err = c.Run(t.Context(), host, snapshot)
	require.NoError(t, err)
	require.NoError(t, c.Probe(t.Context(), host))
	host.Address = "elsewhere.mdns.invalid"
	_, err = c.Run(t.Context(), host, snapshot)
	requireClass(t, remote.Unreachable, err)
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
			_, err := c.Run(t.Context(), gpu, snapshot)
			require.NoError(t, err)
			require.Equal(t, want, from.Load())
		})
	}
	for _, line := range []string{"BindAddress nowhere.invalid", "BindAddress ::1", "BindInterface none-0"} {
		t.Run(line, func(t *testing.T) {
			c := newClient(t, sshclient.Options{ConfigFile: f.config(line), ConnectTimeout: 3 * time.Second})
			require.ErrorIs(t, c.Probe(t.Context(), gpu), remote.ErrNoProbe, "a login says what is wrong")
			_, err := c.Run(t.Context(), gpu, snapshot)
			requireClass(t, remote.Configuration, err)
			require.ErrorContains(t, err, strings.Fields(line)[0])
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
		_, err := c.Run(t.Context(), remote.Host{Name: name, Port: f.address().Port}, snapshot)
		require.NoError(t, err, name)
		require.NoError(t, c.Probe(t.Context(), remote.Host{Name: name, Port: f.address().Port}), name)
	}
}

// TestIPv6Zone: an address with a zone, by name and by number.
func TestIPv6Zone(t *testing.T) {
	listener, err := net.Listen("tcp6", "[::1]:0")
	needs(t, err == nil, "IPv6 on the loopback")
	f := startFake(t, func(f *fake) {
		_ = f.listener.Close()
		f.listener = listener
	})
	lo, err := net.InterfaceByName("lo")
	needs(t, err == nil, "a loopback interface that is called lo")
	for _, zone := range []string{"lo", fmt.Sprint(lo.Index)} {
		host := remote.Host{Name: "gpu", Address: "::1%" + zone, Port: f.address().Port}
		f.asNamed(host.Address)
		c := newClient(t, sshclient.Options{ConfigFile: f.config()})
		require.NoError(t, c.Probe(t.Context(), host))
		_, err = c.Run(t.Context(), host, snapshot)
		require.NoError(t, err)
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
	_, err := c.Run(t.Context(), remote.Host{Name: "gpu", Address: "gpu.mdns.invalid", Port: f.address().Port}, snapshot)
	require.NoError(t, err)
	peer, known := c.Peer(remote.Host{Name: "gpu", Address: "gpu.mdns.invalid", Port: f.address().Port})
	require.True(t, known)
	require.Equal(t, f.address().String(), peer.Address)
}
