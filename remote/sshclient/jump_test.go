package sshclient_test

import (
	"fmt"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/seed-3119e985/genv/remote"
	"github.com/seed-3119e985/genv/remote/sshclient"
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
				out, err := c.Run(t.Context(), remote.Host{Name: fmt.Sprintf("gpu-%d", i)}, from)
				require.NoError(t, err)
				require.Contains(t, string(out.Stdout), fmt.Sprint(j.last.port))
			})
		}
		all.Wait()
		require.Equal(t, []int{1, 1, 8}, []int{logins(t, j.first), logins(t, j.second), logins(t, j.last)})
	})
	t.Run("a jump host with a jump host of its own", func(t *testing.T) {
		c := newClient(t, sshclient.Options{ConfigFile: j.config(t, "Host gpu", " ProxyJump second", "Host second", " ProxyJump first")})
		_, err := c.Run(t.Context(), gpu, from)
		require.NoError(t, err)
	})
	t.Run("with user and port, and an override of the host's address", func(t *testing.T) {
		item := fmt.Sprintf("root@%s:%d", j.first.address, j.first.port)
		c := newClient(t, sshclient.Options{ConfigFile: j.config(t, "Host elsewhere", " ProxyJump "+item)})
		_, err := c.Run(t.Context(), remote.Host{Name: "elsewhere", Address: j.last.address, Port: j.last.port}, from)
		require.NoError(t, err)
	})
	t.Run("the jump host's key is checked", func(t *testing.T) {
		known := j.first.read(t, "all_known")
		j.first.write(t, "all_known", j.last.read(t, "known_hosts"))
		defer j.first.write(t, "all_known", known)
		before := logins(t, j.first)
		c := newClient(t, sshclient.Options{ConfigFile: j.config(t, "Host gpu", " ProxyJump first")})
		_, err := c.Run(t.Context(), gpu, from)
		requireClass(t, remote.HostKey, err)
		require.ErrorContains(t, err, "jump host first")
		require.Equal(t, before, logins(t, j.first))
	})
	t.Run("a jump host that is down", func(t *testing.T) {
		c := newClient(t, sshclient.Options{ConfigFile: j.config(t, "Host gpu", " ProxyJump dead", "Host dead", " HostName 127.0.0.1", " Port 1")})
		_, err := c.Run(t.Context(), gpu, from)
		requireClass(t, remote.Unreachable, err)
		require.ErrorContains(t, err, "jump host dead")
	})
	t.Run("a host that is down behind one that is up", func(t *testing.T) {
		c := newClient(t, sshclient.Options{ConfigFile: j.config(t, "Host gpu*", " ProxyJump first")})
		_, err := c.Run(t.Context(), remote.Host{Name: "gpu", Port: 1}, from)
		requireClass(t, remote.Unreachable, err)
		_, err = c.Run(t.Context(), remote.Host{Name: "gpu-2"}, from)
		require.NoError(t, err)
	})
	t.Run("hosts that jump through each other", func(t *testing.T) {
		c := newClient(t, sshclient.Options{ConfigFile: j.config(t, "Host first", " ProxyJump second", "Host second", " ProxyJump first")})
		for _, host := range []string{"first", "second"} {
			_, err := c.Run(t.Context(), remote.Host{Name: host}, from)
			requireClass(t, remote.Configuration, err)
		}
	})
	t.Run("ProxyCommand", func(t *testing.T) {
		config := j.config(t, "Host gpu", " ProxyCommand ssh -F %d/../proc/self/cwd/none -W [%h]:%p first")
		config = write(t, strings.Replace(readFile(t, config), "%d/../proc/self/cwd/none", j.config(t), 1))
		c := newClient(t, sshclient.Options{ConfigFile: config})
		_, err := c.Run(t.Context(), gpu, from)
		require.NoError(t, err)
	})
}
