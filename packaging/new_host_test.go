package packaging

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/seed-3119e985/genv/snapshot/proc/proctest"
)

// asNew gives the machine a driver, and takes away what an earlier genv left.
func (m *machine) asNew() {
	m.t.Helper()
	m.sh(`dpkg --purge genv
		rm -rf /var/tmp/genv /var/lib/genv /usr/local/bin/genv
		[ -e /proc/driver/nvidia/version ] || { mount -t tmpfs -o mode=0755 none /proc/driver && mkdir /proc/driver/nvidia && echo 550 >/proc/driver/nvidia/version; }`)
}

// stateOf says who owns the state, and whether the service runs and is enabled.
func (m *machine) stateOf() string {
	m.t.Helper()
	owner := "shared"
	if m.exists("/var/lib/genv/host/owner.json") {
		owner = "root"
	}
	return owner + " " + m.show(hostSocket, "ActiveState") + " " + m.show(hostSocket, "UnitFileState")
}

const rootOwns, usersWrite = "root active enabled", "shared inactive disabled"

// TestWhoOwnsTheStateOfANewHost: root does from the beginning, unless that would change something for somebody;
// and an upgrade changes nothing.
func TestWhoOwnsTheStateOfANewHost(t *testing.T) {
	m := startMachine(t)
	m.asGPUHost()
	m.boot()
	for _, tt := range []struct{ name, has, want string }{
		{"a new host", ":", rootOwns},
		{"no driver", "umount /proc/driver", usersWrite},
		{"a state folder", "mkdir /var/tmp/genv", usersWrite},
		{"a link in its place", "ln -s /nowhere /var/tmp/genv", usersWrite},
		{"genv 1.4.3 in PATH", "printf '#!/usr/bin/python3\\n' >/usr/local/bin/genv", usersWrite},
		{"another program of that name", "printf '#!/bin/sh\\n' >/usr/local/bin/genv", rootOwns},
		{"genv 1.4.3 in site-packages", "mkdir -p /usr/local/lib/python3.11/dist-packages/genv", usersWrite},
		{"genv 1.4.3 runs", `mkdir /opt/python; cp /bin/sleep /opt/python/python3; ln -s /opt/python/python3 /opt/python/genv
			systemd-run --quiet --unit=old --service-type=exec /opt/python/genv 1000`, usersWrite},
	} {
		m.asNew()
		m.sh(tt.has)
		said := m.install("v1.0.0")
		require.Equal(t, tt.want, m.stateOf(), tt.name)
		require.Equal(t, tt.name == "no driver", strings.Contains(said, "genv: next, on this jump host: name the GPU hosts"), said)
		require.Equal(t, tt.name != "no driver", strings.Contains(said, "genv: next, on this GPU host: `genv gpus`"), said)
		m.sh("systemctl stop old 2>/dev/null || :; rm -rf /usr/local/lib/python3.11/dist-packages/genv")
	}

	m.asNew()
	m.install("v1.0.0")
	require.NotContains(t, m.install("v1.0.1"), "genv: next")
	require.Equal(t, rootOwns, m.stateOf(), "it stays root's")
	m.sh("systemctl disable --now " + hostSocket + " " + hostService + "; genv host handover; rm -r /var/tmp/genv")
	m.install("v1.0.0")
	require.Equal(t, usersWrite, m.stateOf(), "it stays the users'")
}

// TestRemoteInstallDecidesWhoOwnsTheState does the same over ssh, and with --state.
func TestRemoteInstallDecidesWhoOwnsTheState(t *testing.T) {
	m := startMachine(t)
	proctest.NeedPrograms(t, "sshd", "ssh-keygen")
	m.asGPUHost()
	m.boot()
	m.asNew()
	known := m.startSSHD("127.0.0.1", "PermitRootLogin yes\n")
	m.sh(`mount -t tmpfs -o mode=0700 none /root # not this machine's keys
		mkdir -m 0700 /root/.ssh
		ssh-keygen -q -t ed25519 -N '' -f /root/.ssh/id_ed25519
		cp /root/.ssh/id_ed25519.pub /root/.ssh/authorized_keys`)
	m.write("/root/.ssh/known_hosts", known, 0o644)
	m.copyIn(program(t, "genv"), "/tmp/genv", 0o755)
	install := func(flags ...string) string {
		t.Helper()
		return m.must(append([]string{"env", "HOME=/root", "/tmp/genv", "remote", "install", "-H", "127.0.0.1", "-l", "root"}, flags...)...)
	}
	require.Contains(t, install(), "root owns the state by its service")
	require.Equal(t, rootOwns, m.stateOf())
	require.Equal(t, "/usr/local/bin/genv", strings.Fields(m.must("cat", "/proc/"+m.show(hostService, "MainPID")+"/cmdline"))[0][:19])
	require.Contains(t, install(), "unchanged")

	require.Contains(t, install("--state", "shared"), "every user writes the state")
	require.Equal(t, "shared inactive ", m.stateOf())
	require.Equal(t, "root 777", m.owner("/var/tmp/genv"))
	m.sh("rm -r /var/tmp/genv")
	require.Contains(t, install("--upgrade"), "unchanged", "an upgrade doesn't change it")
	out, err := m.run("env", "HOME=/root", "/tmp/genv", "remote", "install", "-H", "127.0.0.1", "-l", "root", "--state", "root")
	require.Error(t, err, "what is lost is not read as empty: %s", out)
	require.Contains(t, m.sh("journalctl --unit="+hostService), "begin again with `sudo genv envs --reset`")
	_, _ = m.run("genv", "envs", "--reset") // it says that devices.json is lost, too
	m.must("genv", "devices", "--reset")
	install("--state", "root")
	require.Equal(t, rootOwns, m.stateOf())

	before, loaded := m.show(hostService, "MainPID"), m.loaded()
	m.sh("cp /usr/local/bin/genv /tmp/other; printf x >>/tmp/other; mv /tmp/other /usr/local/bin/genv")
	require.Contains(t, install("--upgrade"), "upgraded")
	require.Equal(t, rootOwns, m.stateOf())
	require.NotEqual(t, before, m.show(hostService, "MainPID"), "it continues with the new program")
	require.Equal(t, loaded, m.loaded(), "the units are the same: containers keep their GPUs")
	m.must("touch", "/etc/systemd/system/"+hostService) // as if systemd could not load it when it was written
	require.Equal(t, "yes", m.show(hostService, "NeedDaemonReload"))
	require.Contains(t, install(), "repaired")
	require.Equal(t, "no", m.show(hostService, "NeedDaemonReload"))
	require.Contains(t, install(), "unchanged")

	require.Contains(t, install("--uninstall"), "`--state root` with the next installation")
	require.Equal(t, "shared inactive ", m.stateOf())
	require.Empty(t, strings.TrimSpace(m.sh("find /etc/systemd/system -name '*genv*'")))
	require.Equal(t, "root 777", m.owner("/var/tmp/genv"))
	require.Contains(t, install(), "`--state root` lets root own it")
}
