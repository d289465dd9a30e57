package packaging

import (
	"encoding/json"
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/seed-3119e985/genv/remote/testfleet/gpus"
)

const (
	hostService = "genv-host.service"
	hostSocket  = "genv-host.socket"
)

// aliceActivates opens an environment for a process of alice's.
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
	m := startGPUHost(t)
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
	m.sh("cd /tmp && dpkg-deb --raw-extract genv.deb old && echo '# of an earlier version' >>old/usr/lib/systemd/system/" + hostSocket +
		" && dpkg-deb -Znone --build old old.deb && dpkg --install old.deb")
	earlier := m.loaded()
	require.NotEqual(t, loaded, earlier)
	m.install("v1.0.0")
	require.NotEqual(t, earlier, m.loaded(), "its files are older than those that systemd has loaded")
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
	m := startGPUHost(t)
	m.dropIn(hostService, "[Service]\nWatchdogSec=1\n")
	m.must("systemctl", "start", hostService)
	pid := m.show(hostService, "MainPID")
	m.must("kill", "-STOP", pid)
	m.until("it runs again", func() bool {
		now := m.show(hostService, "MainPID")
		return now != pid && now != "0" && m.show(hostService, "ActiveState") == "active"
	})
	require.Contains(t, m.must("genv", "host", "status"), "process "+m.show(hostService, "MainPID"))
}

// asGuardable gives a machine with GPUs what the guard looks at: a bpffs, the driver's /proc
// folder, and nodes. The GPU at index i has minor 1-i.
func (m *machine) asGuardable() {
	m.t.Helper()
	if out, err := m.run("sh", "-ec", "mount -t bpf bpf /sys/fs/bpf; mount -t tmpfs -o mode=0755 none /proc/driver"); err != nil {
		skip(m.t, "a private machine can't have a bpffs here: "+out)
	}
	for index, gpu := range gpus.H100s("private", 2) {
		m.sh(fmt.Sprintf(`folder=/proc/driver/nvidia/gpus/0000:0%d:00.0
			mkdir -p $folder
			printf 'GPU UUID: %s\nDevice Minor: %d\n' >$folder/information
			mknod -m 0666 /dev/nvidia%d c 195 %d`, index+1, gpu.UUID, 1-index, 1-index, 1-index))
	}
	// The guard is attached to the root of the cgroups that the machine sees.
	require.NotEqual(m.t, "1", strings.TrimSpace(m.must("stat", "-c", "%i", "/sys/fs/cgroup")), "not the root cgroup of the real machine")
}

// opens says whether an account may open the node of the GPU at an index, from a service in a cgroup of its own.
func (m *machine) opens(account string, index int) bool {
	m.t.Helper()
	node := fmt.Sprintf("/dev/nvidia%d", 1-index)
	m.must("systemd-run", "--quiet", "--collect", "--service-type=oneshot", "--uid="+account, "--property=StandardOutput=truncate:/tmp/opened",
		"sh", "-c", "cat "+node+" 2>&1 || true") // there is no driver, so each open fails
	out := m.must("cat", "/tmp/opened")
	if strings.Contains(out, node+": No such device or address") {
		return true
	}
	require.Contains(m.t, out, node+": Operation not permitted")
	return false
}

// awaitGuard waits until the guard of the machine is in a mode, kept by the present service.
func (m *machine) awaitGuard(mode string) {
	m.t.Helper()
	m.until("the guard is in mode "+mode, func() bool {
		out, _ := m.run("genv", "guard", "status", "--format", "json")
		var now struct {
			Mode   string
			Keeper int
		}
		return json.Unmarshal([]byte(out), &now) == nil && now.Mode == mode && (mode == "off" || strconv.Itoa(now.Keeper) == m.show(guardService, "MainPID"))
	})
}

// link tells one guard in the kernel from another.
func (m *machine) link() string {
	m.t.Helper()
	return m.must("stat", "-c", "%i", "/sys/fs/bpf/genv/link")
}

const guardService = "genv-guard.service"

// TestTheGuardUnderSystemd: through all hardening of genv-guard.service its guard judges what
// the cgroups of others open, all see its pins, and it can be turned off from outside.
func TestTheGuardUnderSystemd(t *testing.T) {
	m := startMachine(t)
	m.install("v1.0.0")
	m.asGPUHost()
	m.asGuardable()
	m.boot()
	m.sh("useradd --create-home alice; useradd --create-home bob")
	m.must("systemctl", "enable", "--now", hostSocket, hostService)
	m.aliceActivates("job")
	m.aliceAttaches(1)
	require.True(t, m.opens("bob", 0), "there is no guard yet")

	require.Equal(t, "inactive disabled", m.show(guardService, "ActiveState")+" "+m.show(guardService, "UnitFileState"), "off by default")
	m.must("systemctl", "enable", "--now", guardService)
	m.awaitGuard("enforce")
	namespace := func(pid string) string { return m.must("readlink", "/proc/"+pid+"/ns/mnt") }
	require.Equal(t, namespace("1"), namespace(m.show(guardService, "MainPID")), "the guard's pins are seen by all")
	m.checkHostService()
	require.Equal(t, "root 700", m.owner("/sys/fs/bpf/genv"))
	require.True(t, m.opens("alice", 0))
	require.False(t, m.opens("alice", 1))
	require.False(t, m.opens("bob", 0))
	require.True(t, m.opens("root", 0))
	m.until("it counts", func() bool { return strings.Contains(m.must("genv", "guard", "status"), "denied") })

	m.guardOutlivesItsService()
	m.guardEndsFromOutside()
}

// guardOutlivesItsService kills the service: not one open is let through.
func (m *machine) guardOutlivesItsService() {
	m.t.Helper()
	m.must("systemd-run", "--quiet", "--unit=bob", "--uid=bob", "sh", "-c",
		`while sleep 0.005; do cat /dev/nvidia1; done >/home/bob/opens 2>&1`)
	link := m.link()
	killed := m.show(guardService, "MainPID")
	m.must("kill", "-KILL", killed)
	m.until("it runs again", func() bool {
		now := m.show(guardService, "MainPID")
		return now != killed && now != "0"
	})
	m.awaitGuard("enforce")
	m.must("systemctl", "stop", "bob")
	require.Equal(m.t, link, m.link())
	opens := m.must("cat", "/home/bob/opens")
	require.NotContains(m.t, opens, "No such device or address")
	denied := strings.Count(opens, "Operation not permitted")
	require.NotZero(m.t, denied)
	m.t.Logf("0 of %d opens let through while the service was killed and started again", denied)
	require.True(m.t, m.opens("alice", 0))
}

// guardEndsFromOutside turns the guard off in each way that docs/guard.md names.
func (m *machine) guardEndsFromOutside() {
	m.t.Helper()
	m.must("genv", "guard", "off")
	require.True(m.t, m.opens("bob", 0), "at once")
	require.False(m.t, m.exists("/sys/fs/bpf/genv"))
	m.until("its service ends", func() bool { return m.show(guardService, "ActiveState") == "inactive" })
	m.must("systemctl", "restart", hostService)
	m.awaitGuard("off")
	require.True(m.t, m.opens("bob", 0), "root's service doesn't turn it on")

	m.must("systemctl", "start", guardService)
	m.awaitGuard("enforce")
	require.False(m.t, m.opens("bob", 0))
	m.write("/etc/genv/guard.off", "", 0o644)
	m.awaitGuard("off")
	require.True(m.t, m.opens("bob", 0))
	m.must("rm", "/etc/genv/guard.off")
	m.awaitGuard("enforce")
	require.False(m.t, m.opens("bob", 0))

	m.must("rm", "-r", "/sys/fs/bpf/genv")
	m.awaitGuard("off")
	require.True(m.t, m.opens("bob", 0))
	m.until("its service ends", func() bool { return m.show(guardService, "ActiveState") == "inactive" })
	require.Equal(m.t, "success", m.show(guardService, "Result"))
}
