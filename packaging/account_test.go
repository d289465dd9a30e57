package packaging

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestOneAccount: root's `genv remote` is the controller's account, members of its group see everything, and the
// record says who acted.
func TestOneAccount(t *testing.T) {
	const unit = "genv-controller.service"
	m := startMachine(t)
	need(t, "sshd", "sudo", "ssh-keygen")
	m.install("v1.0.0")
	m.asGPUHost()
	m.boot()
	m.asFleet()
	m.hasten(unit)
	m.write("/etc/genv/hosts.yaml", "hosts: [{name: gpu-01, address: 127.0.0.1}]\n", 0o644)
	m.sh(`mount -t tmpfs -o mode=0700 none /root # not this machine's keys
		useradd --create-home --password '*' --groups genv alice
		useradd --create-home bob`)
	m.must("systemctl", "start", unit)
	m.await(unit, "1 of 1 host answered")

	// Alice's login, who became root; its agent and its configuration aren't the account's.
	m.sh("mkdir -p /root/.config/genv; echo 'colour: red' >/root/.config/genv/config.yaml; chmod 0755 /root")
	sudo := func(command string) (string, error) {
		return m.run("/bin/sh", "-c", "echo $(id -u alice) >/proc/self/loginuid; export HOME=/root XDG_STATE_HOME=/root SSH_AUTH_SOCK=/root/agent; "+command)
	}
	for _, command := range []string{"gpus", "doctor", "enforce -H @all --interval 0 --dry-run", "report", "exempt --user bob --for 1h --reason deadline", "top --plain --once"} {
		out, err := sudo("genv remote " + command)
		require.NoError(t, err, "%s: %s", command, out)
	}
	for _, command := range []string{"install -H @all --check", "activate -H @all"} {
		out, err := sudo("rm -f /root/.config/genv/config.yaml; genv remote " + command)
		require.Error(t, err, "%s: %s", command, out)
		require.Contains(t, out, "gpu-01", "with root's own ssh, which knows no host")
	}
	m.write("/etc/genv/hooks.yaml", "hooks: [{command: [/bin/sh, -c, 'id -un; exit 3']}]\n", 0o644)
	notify := "genv policy test-notify --policy /etc/genv/hooks.yaml --to bob"
	out, err := sudo(notify)
	require.Error(t, err)
	require.Contains(t, out, "failed: exit status 3: genv\n")
	out, err = m.as("alice", notify)
	require.Error(t, err)
	require.Contains(t, out, "run it with sudo")
	alice := strings.TrimSpace(m.must("id", "-u", "alice"))
	require.Contains(t, m.sh("cat /var/log/genv-controller/audit.jsonl"), `"alice (uid `+alice+`), as genv"`)

	out, err = m.as("alice", "genv remote history && genv remote top --plain --once")
	require.NoError(t, err, out)
	require.Contains(t, out, "deadline")
	for user, commands := range map[string][]string{
		"alice": {"exempt --user bob --for 1h --reason deadline"},
		"bob":   {"exempt --list", "history", "report", "top --plain --once"},
	} {
		for _, command := range commands {
			out, err := m.as(user, "genv remote "+command)
			require.Error(t, err, "%s: %s", command, out)
			require.Contains(t, strings.ToLower(out), "run it with sudo", "%s: %s", user, command)
		}
	}
	out, err = m.as("alice", `export HOME=/home/alice; cd; mkdir -m 0700 .ssh; ssh-keygen -q -t ed25519 -N '' -f .ssh/id_ed25519; cp .ssh/id_ed25519.pub .ssh/authorized_keys
		echo "127.0.0.1 $(cut -d' ' -f1,2 /etc/ssh/test_key.pub)" >.ssh/known_hosts
		genv remote gpus && genv remote doctor -H @all; genv remote enforce -H @all --interval 0 --dry-run`)
	require.Error(t, err, "alice has no rights on the host")
	require.Contains(t, out, "run it with sudo: only the controller's account has rights on the hosts")
	require.NotContains(t, out, "NOPASSWD")
	out, err = m.as("alice", "export HOME=/home/alice; mkdir -p ~/.config/genv; echo 'account: bob' >~/.config/genv/config.yaml; genv remote gpus")
	require.Error(t, err)
	require.Contains(t, out, "account is read at the top of /etc/genv/config.yaml alone")
}
