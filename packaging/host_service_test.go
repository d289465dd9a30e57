package packaging

import (
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

const (
	hostService = "genv-host.service"
	hostSocket  = "genv-host.socket"
)

// aliceActivates opens an environment for a process of alice's, and returns a shell script's
// words that attach it to as many devices.
func (m *machine) aliceActivates(eid string) {
	m.t.Helper()
	out, err := m.as("alice", "setsid sleep 1000 >/dev/null 2>&1 & genv envs activate --eid "+eid+" --pid $!")
	require.NoError(m.t, err, out)
}

// aliceAttaches attaches as many devices to the environment job.
func (m *machine) aliceAttaches(count int) {
	m.t.Helper()
	out, err := m.as("alice", fmt.Sprintf("genv devices attach --eid job --count %d", count))
	require.NoError(m.t, err, out)
}

// TestHostServiceUnderSystemd runs genv-host.socket and genv-host.service under a real
// systemd, from the first start to the removal of the package, for a user without rights.
func TestHostServiceUnderSystemd(t *testing.T) {
	m := startMachine(t)
	m.install("v1.0.0")
	m.asGPUHost()
	m.boot()
	m.must("useradd", "--create-home", "alice")
	require.Equal(t, "inactive inactive", m.show(hostSocket, "ActiveState")+" "+m.show(hostService, "ActiveState"), "installing starts nothing")
	m.aliceActivates("job")

	m.must("systemctl", "enable", "--now", hostSocket, hostService)
	require.Equal(t, "active", m.show(hostService, "ActiveState"), "systemctl has waited until the service said so")
	require.Equal(t, "root 755", m.owner("/run/genv"))
	require.Equal(t, "root 666", m.owner("/run/genv/host.sock"))
	require.Equal(t, "root 644", m.owner("/var/lib/genv/host/envs.json"))
	m.aliceAttaches(1)
	require.Contains(t, m.must("cat", "/var/lib/genv/host/devices.json"), `"job"`)
	m.checkHostService()

	// What the package and the other unit do to the folder leaves the socket reachable.
	m.must("systemd-tmpfiles", "--create", "genv.conf")
	m.write("/etc/genv/policy.yaml", "defaults: {}\n", 0o644)
	m.must("systemctl", "start", "genv-enforce.service")
	m.aliceAttaches(2)
	m.must("systemctl", "stop", "genv-enforce.service")

	// Only the service is stopped: the next command starts it by the socket.
	first := m.show(hostService, "MainPID")
	m.must("systemctl", "stop", hostService)
	require.Equal(t, "inactive success", m.show(hostService, "ActiveState")+" "+m.show(hostService, "Result"))
	m.aliceAttaches(1)
	require.Equal(t, "active", m.show(hostService, "ActiveState"))
	require.NotEqual(t, first, m.show(hostService, "MainPID"))

	// One that is killed is started again, and users' commands wait for it.
	killed := m.show(hostService, "MainPID")
	m.must("kill", "-KILL", killed)
	m.aliceAttaches(2)
	require.NotEqual(t, killed, m.show(hostService, "MainPID"))

	// Nor does an upgrade lose anything.
	loaded := m.loaded()
	m.install("v1.0.1")
	require.Equal(t, "active", m.show(hostService, "ActiveState"))
	require.Equal(t, loaded, m.loaded(), "the units are the same: containers keep their GPUs")
	require.Equal(t, "no no", m.show(hostSocket, "NeedDaemonReload")+" "+m.show(hostService, "NeedDaemonReload"))
	m.sh("echo '# of an earlier version' >>/usr/lib/systemd/system/" + hostSocket)
	m.install("v1.0.0")
	require.NotEqual(t, loaded, m.loaded())
	out, err := m.as("alice", "genv host status")
	require.NoError(t, err, out)
	require.Contains(t, out, "(genv ")

	m.must("systemctl", "stop", hostSocket, hostService)
	out, err = m.as("alice", "genv devices attach --eid job --count 1")
	require.Error(t, err)
	require.Contains(t, out, "systemctl start genv-host")
	m.must("systemctl", "start", hostSocket)

	m.must("dpkg", "--remove", "genv")
	require.Equal(t, "inactive inactive", m.show(hostSocket, "ActiveState")+" "+m.show(hostService, "ActiveState"), "a removal stops both")
	require.Equal(t, "root 777", m.owner("/var/tmp/genv"), "users have their state back")
	require.Contains(t, m.must("cat", "/var/tmp/genv/envs.json"), `"job"`)
	require.False(t, m.exists("/var/lib/genv/host/owner.json"))
	m.must("dpkg", "--purge", "genv")
	require.Empty(t, strings.TrimSpace(m.sh("find /etc/systemd/system -name 'genv*'")))
}

// checkHostService looks at what the kernel says of the running service, and at whether it
// reaches what it needs through its hardening.
func (m *machine) checkHostService() {
	m.t.Helper()
	status := m.must("cat", "/proc/"+m.show(hostService, "MainPID")+"/status")
	for _, line := range []string{"NoNewPrivs:\t1", "Seccomp:\t2"} {
		require.Contains(m.t, status, line)
	}
	bounds := regexp.MustCompile(`CapBnd:\t(\w+)`).FindStringSubmatch(status)
	has, err := strconv.ParseUint(bounds[1], 16, 64)
	require.NoError(m.t, err)
	for _, capability := range []int{unix.CAP_SYS_ADMIN, unix.CAP_BPF, unix.CAP_NET_ADMIN, unix.CAP_PERFMON, unix.CAP_SYS_RESOURCE} {
		require.Zero(m.t, has&(1<<capability), "what only the guard needs")
	}
	out, err := m.as("alice", "genv gpus --format csv")
	require.NoError(m.t, err, out)
	require.NotContains(m.t, out, "may be a part", "root's service answers, with nvidia-smi")
}

// TestHostServiceThatHangs: systemd starts a service again that doesn't ping any more.
func TestHostServiceThatHangs(t *testing.T) {
	m := startMachine(t)
	m.install("v1.0.0")
	m.asGPUHost()
	m.boot()
	m.must("mkdir", "-p", "/etc/systemd/system/"+hostService+".d")
	m.write("/etc/systemd/system/"+hostService+".d/watchdog.conf", "[Service]\nWatchdogSec=1\n", 0o644)
	m.must("systemctl", "daemon-reload")
	m.must("systemctl", "start", hostService)
	pid := m.show(hostService, "MainPID")
	m.must("kill", "-STOP", pid)
	require.Eventually(t, func() bool {
		now := m.show(hostService, "MainPID")
		return now != pid && now != "0" && m.show(hostService, "ActiveState") == "active"
	}, time.Minute, 100*time.Millisecond)
	require.Contains(t, m.must("genv", "host", "status"), "process "+m.show(hostService, "MainPID"))
}
