package packaging

import (
	"os/exec"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// connect gives two machines a network of their own, with these addresses.
func connect(t *testing.T, machines map[string]*machine) {
	t.Helper()
	words := []string{"link", "add", "eth0"}
	for _, m := range machines {
		words = append(words, "netns", strconv.Itoa(m.pid))
		if len(words) == 5 {
			words = append(words, "type", "veth", "peer", "name", "eth0")
		}
	}
	out, err := exec.Command("ip", words...).CombinedOutput()
	require.NoError(t, err, string(out))
	for address, m := range machines {
		m.sh("ip addr add " + address + "/24 dev eth0; ip link set eth0 up")
	}
}

// TestQuickStart follows README.md with a jump host and a new GPU host: a person's login installs all that the
// controller needs with one password, and the controller works with that alone.
func TestQuickStart(t *testing.T) {
	jump, host := startMachine(t), startMachine(t)
	need(t, "sshd", "sudo", "ssh-keygen", "script")
	connect(t, map[string]*machine{"10.0.0.1": jump, "10.0.0.2": host})
	host.asGPUHost()
	host.boot()
	host.asNew()
	host.write("/etc/ssh/test_config", strings.Replace(sshdConfig, "127.0.0.1", "10.0.0.2", 1), 0o644)
	host.sh(`mkdir -p /run/sshd; ssh-keygen -q -t ed25519 -N '' -f /etc/ssh/test_key
		useradd --create-home alice; echo alice:secret | chpasswd; echo 'alice ALL=(ALL) ALL' >/etc/sudoers.d/alice`)
	host.must("systemd-run", "--quiet", "--unit=sshd-of-test", "/usr/sbin/sshd", "-D", "-f", "/etc/ssh/test_config")

	jump.install("v1.0.0")
	require.Equal(t, "root 644", jump.owner("/etc/genv/controller.pub"))
	require.Equal(t, "genv 600", jump.owner("/var/lib/genv-controller/.ssh/id_ed25519"))
	jump.boot()
	jump.must("useradd", "--create-home", "alice")
	out, err := jump.as("alice", "cd; HOME=/home/alice; mkdir -m 0700 $HOME/.ssh; ssh-keygen -q -t ed25519 -N '' -f $HOME/.ssh/id_ed25519; cat $HOME/.ssh/id_ed25519.pub")
	require.NoError(t, err, out)
	host.sh("install -d -m 0700 -o alice -g alice /home/alice/.ssh; echo '" + strings.TrimSpace(out) + "' >/home/alice/.ssh/authorized_keys")
	jump.write("/etc/genv/ssh_known_hosts", "10.0.0.2 "+host.must("cut", "-d ", "-f1,2", "/etc/ssh/test_key.pub"), 0o644)
	jump.write("/etc/genv/hosts.yaml", "hosts: [{name: gpu-01, address: 10.0.0.2}]\n", 0o644)

	install := func(flags string) string {
		t.Helper()
		out, err := jump.as("alice", "export HOME=/home/alice; (sleep 2; echo secret; sleep 5) | script -qec 'genv remote install -H @all --ask-sudo-password "+flags+"' /dev/null")
		require.NoError(t, err, out)
		return out
	}
	out = install("")
	for _, says := range []string{"the account genv is made", "the controller's key may log in as genv", "root owns the state by its service", "installed"} {
		require.Contains(t, out, says)
	}
	require.Contains(t, host.must("getent", "shadow", "genv"), "genv:*:", "no password fits")
	require.Contains(t, host.must("cat", "/etc/sudoers.d/zz-genv"), "\ngenv ALL=(root) NOPASSWD: ")
	require.NotContains(t, host.must("cat", "/etc/sudoers.d/zz-genv"), "alice", "a person gets no rights")
	require.Contains(t, install(""), "unchanged")

	jump.must("genv", "remote", "enforce", "-H", "@all", "--interval", "0", "--dry-run")
	jump.must("systemctl", "enable", "--now", "genv-controller")
	jump.await("genv-controller", "1 of 1 host answered")
}
