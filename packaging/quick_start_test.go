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
	host.sh(`man -w genv-attach; test -s /usr/local/share/bash-completion/completions/genv; test -s /usr/local/share/zsh/site-functions/_genv; test -s /usr/local/share/fish/vendor_completions.d/genv.fish
		grep -qx 'x /var/tmp/genv' /etc/tmpfiles.d/genv-state.conf
		[ /usr/bin/genv -ef /usr/local/bin/genv ]; [ "$(systemctl is-enabled genv-enforce || :)" = disabled ]`)

	jump.must("genv", "remote", "enforce", "-H", "@all", "--interval", "0", "--dry-run")
	jump.must("systemctl", "enable", "--now", "genv-controller")
	jump.await("genv-controller", "1 of 1 host answered")
	jump.must("systemctl", "stop", "genv-controller")

	// All users' shells have genv, and one that fails or hangs breaks none.
	shell := func(kind string) string { return host.must("runuser", "-u", "alice", "--", kind, "-ic", "type genv") }
	host.sh("mv /etc/bash.bashrc /etc/bash.site; ln -s bash.site /etc/bash.bashrc; printf '# a last line without an end' >>/etc/bash.site")
	require.Contains(t, install("--shell-setup"), "genv in the shells of all users, by /etc/bash.bashrc")
	require.Contains(t, install("--shell-setup"), "unchanged")
	require.Contains(t, shell("bash"), "function")
	host.sh("mv /usr/local/bin/genv /tmp/; printf '#!/bin/sh\\ntrap \"\" TERM; sleep 60; exit 1\\n' >/usr/local/bin/genv; chmod 0755 /usr/local/bin/genv")
	require.NotContains(t, shell("bash"), "function")
	host.sh("mv /tmp/genv /usr/local/bin/genv")

	requireKept(t, jump, host)
	purge(t, jump, host)
}

// requireKept requires that --purge removes nothing while an environment is active, or where genv 1.4.3 is.
func requireKept(t *testing.T, jump, host *machine) {
	t.Helper()
	host.sh("useradd bob; systemd-run --quiet --unit=bob --uid=bob genv run --gpus 1 -- sleep 1000; until genv envs --format csv --no-header | grep -q bob; do sleep 0.1; done")
	purge := func() (string, error) {
		return jump.as("alice", "export HOME=/home/alice; (sleep 2; echo secret; sleep 5) | script -qec 'genv remote install -H @all --ask-sudo-password --purge' /dev/null")
	}
	out, err := purge()
	require.Error(t, err, out)
	require.Contains(t, out, "environments are active: 1")
	host.sh("test -x /usr/local/bin/genv; mkdir -p /usr/local/lib/python3.11/dist-packages/genv; systemctl stop bob; until [ -z \"$(genv envs --format csv --no-header)\" ]; do sleep 0.1; done")
	out, err = purge()
	require.Error(t, err, out)
	require.Contains(t, out, "it has genv 1.4.3")
	host.sh("test -x /usr/local/bin/genv; rmdir /usr/local/lib/python3.11/dist-packages/genv")
}

// purge purges a host under a running controller, and then what is left of genv without the program.
func purge(t *testing.T, jump, host *machine) {
	t.Helper()
	// A connected controller brings nothing back.
	const again = "HOME=/home/alice genv remote install -H @all --purge"
	jump.sh("mkdir -p /etc/systemd/system/genv-controller.service.d; printf '[Service]\\nExecStart=\\nExecStart=/usr/bin/genv remote enforce -H @all --interval 0.5\\n' >/etc/systemd/system/genv-controller.service.d/fast.conf; systemctl daemon-reload; systemctl start genv-controller")
	host.sh("echo 'alice ALL=(ALL) NOPASSWD: ALL' >/etc/sudoers.d/alice; until grep -qs 'usage.[s]erve' /proc/[0-9]*/cmdline; do sleep 0.1; done; sleep 1")
	out, err := jump.as("alice", again)
	require.NoError(t, err, out)
	require.Contains(t, out, "the account genv stays")
	host.sh("sleep 2")
	requirePurged(t, host)
	host.sh("test -L /etc/bash.bashrc; tail -n 1 /etc/bash.site | grep -qx '# a last line without an end'")
	host.must("getent", "passwd", "genv")

	// What is left without genv goes, too, unless a process or kernel of an environment may run.
	host.sh(`mkdir -p /var/lib/genv /var/tmp/genv; sleep 1000 >/dev/null 2>&1 & printf '{"envs": [{"pids": [\n%s\n]}]}' $! >/var/tmp/genv/envs.json`)
	out, err = jump.as("alice", again)
	require.Error(t, err, out)
	require.Contains(t, out, "which runs")
	host.sh(`kill "$(tr -dc 0-9 </var/tmp/genv/envs.json)"`)
	host.sh(`printf '{"envs": [{"pids": [], "kernel_ids": [\n"0f1e-22"\n]}]}' >/var/tmp/genv/envs.json`)
	out, err = jump.as("alice", again)
	require.Error(t, err, out)
	require.Contains(t, out, "a Jupyter kernel, which may run")
	host.sh(`echo '{"envs": [{"pids": [], "kernel_ids": []}]}' >/var/tmp/genv/envs.json`)
	for range 2 {
		out, err = jump.as("alice", again)
		require.NoError(t, err, out)
	}
	requirePurged(t, host)
}

// requirePurged requires that a host has nothing of genv but the account.
func requirePurged(t *testing.T, host *machine) {
	t.Helper()
	require.Empty(t, strings.TrimSpace(host.sh(`find /etc /usr/bin /usr/local /usr/lib/systemd /var /run -name '*genv*' ! -path '/var/lib/apt/*' ! -path '/var/lib/dpkg/*' ! -path '/run/genv-install.lock' ! -path '/run/sudo/*' ! -path '/home/*'
		grep -l genv /etc/bash.site /home/genv/.ssh/authorized_keys || :`)))
}
