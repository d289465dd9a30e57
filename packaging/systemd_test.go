package packaging

import (
	"fmt"
	"os"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-3119e985/genv/remote/testfleet/gpus"
	"github.com/seed-3119e985/genv/snapshot/proc/proctest"
)

// sshdConfig is that of the machine's own sshd, so that it is a host of its own fleet.
const sshdConfig = `Port 22
ListenAddress 127.0.0.1
HostKey /etc/ssh/test_key
PidFile none
PasswordAuthentication no
UsePAM no
`

// driverOfTests is the file of the simulated GPUs.
const driverOfTests = "/etc/gpus.json"

// asGPUHost gives the machine a simulated driver.
func (m *machine) asGPUHost() {
	m.t.Helper()
	m.copyIn(program(m.t, "nvidia-smi"), "/usr/local/bin/nvidia-smi.real", 0o755)
	m.write("/usr/bin/nvidia-smi", "#!/bin/sh\nGENV_SIM_GPUS="+driverOfTests+" exec /usr/local/bin/nvidia-smi.real \"$@\"\n", 0o755)
	require.NoError(m.t, gpus.Driver{Devices: gpus.H100s("private", 2)}.Write(m.path(driverOfTests)))
}

// asFleet lets the controller's account log in to the machine itself, as an administrator
// would: a key in the account's home, and the sudoers file of the examples.
func (m *machine) asFleet() {
	m.t.Helper()
	m.write("/var/lib/genv-controller/.ssh/known_hosts", m.startSSHD("127.0.0.1", ""), 0o644)
	m.sh(`home=/var/lib/genv-controller
		setpriv --reuid genv --regid genv --init-groups sh -ec "cp $home/.ssh/id_ed25519.pub $home/.ssh/authorized_keys"
		install -m 0440 /usr/share/doc/genv/examples/sudoers /etc/sudoers.d/zz-genv
		visudo -c`)
}

// startSSHD runs an sshd at an address, and returns its line of a known_hosts.
func (m *machine) startSSHD(address, more string) (known string) {
	m.t.Helper()
	m.write("/etc/ssh/test_config", strings.Replace(sshdConfig, "127.0.0.1", address, 1)+more, 0o644)
	m.sh("mkdir -p /run/sshd; ssh-keygen -q -t ed25519 -N '' -f /etc/ssh/test_key")
	m.must("systemd-run", "--quiet", "--unit=sshd-of-test", "/usr/sbin/sshd", "-D", "-f", "/etc/ssh/test_config")
	return address + " " + m.must("cut", "-d ", "-f1,2", "/etc/ssh/test_key.pub")
}

// startGPUHost is a machine that runs systemd and has GPUs, where the package is installed.
func startGPUHost(t *testing.T, programs ...string) *machine {
	m := startMachine(t)
	proctest.NeedPrograms(t, programs...)
	m.install("v1.0.0")
	m.asGPUHost()
	m.boot()
	return m
}

// show is a property of a unit.
func (m *machine) show(unit, property string) string {
	m.t.Helper()
	return strings.TrimSpace(m.must("systemctl", "show", "--value", "--property="+property, unit))
}

// loaded is when systemd has loaded all units.
func (m *machine) loaded() string {
	m.t.Helper()
	return m.must("systemctl", "show", "--property=UnitsLoadTimestampMonotonic")
}

// hasten gives a unit an interval of a second by a drop-in.
func (m *machine) hasten(unit string) {
	m.t.Helper()
	text := proctest.ReadFile(m.t, m.path("/usr/lib/systemd/system/"+unit))
	start := regexp.MustCompile(`(?m)^ExecStart=(.*\\\n)*.*$`).FindString(string(text))
	require.NotEmpty(m.t, start)
	m.dropIn(unit, "[Service]\nExecStart=\n"+start+" --interval 1\n")
}

func (m *machine) dropIn(unit, text string) {
	m.t.Helper()
	folder := "/etc/systemd/system/" + unit + ".d"
	m.must("mkdir", "-p", folder)
	m.write(folder+"/test.conf", text, 0o644)
	m.must("systemctl", "daemon-reload")
}

// await waits until what a unit says of its cycles contains the text, or begins with it after a newline.
func (m *machine) await(unit, status string) {
	m.t.Helper()
	m.until(unit+" says "+status, func() bool { return strings.Contains("\n"+m.show(unit, "StatusText"), status) })
}

// until waits for something, or fails with the end of the machine's journal and of that of each unit that failed.
func (m *machine) until(what string, is func() bool) {
	m.t.Helper()
	for deadline := time.Now().Add(90 * time.Second); !is(); time.Sleep(100 * time.Millisecond) {
		if time.Now().After(deadline) {
			log, _ := m.run("sh", "-c", "systemctl --failed --plain --no-legend | cut -d' ' -f1 | xargs -rn1 journalctl --no-pager --lines=20 -u; journalctl --no-pager --lines=50")
			require.FailNow(m.t, "no: "+what, log)
		}
	}
}

// TestControllerUnderSystemd runs genv-controller.service under a real systemd, against a
// real sshd and sudo, from the first start to the removal of the package.
func TestControllerUnderSystemd(t *testing.T) {
	const unit = "genv-controller.service"
	m := startGPUHost(t, "sshd", "sudo", "ssh-keygen")
	require.Equal(t, "inactive", m.show(unit, "ActiveState"), "installing starts nothing")
	out, err := m.run("systemctl", "start", unit)
	require.Error(t, err, "without hosts there is nothing to do: "+out)

	m.asFleet()
	m.hasten(unit)
	m.write("/etc/genv/hosts.yaml", "hosts: [{name: gpu-01, address: 127.0.0.1}]\n", 0o644)
	m.must("systemctl", "enable", "--now", unit)
	require.Equal(t, "active", m.show(unit, "ActiveState"))
	m.await(unit, "1 of 1 host answered")
	require.Contains(t, m.must("systemctl", "status", "--no-pager", unit), `Status: "cycle `)
	m.checkConfinement(unit)

	m.write("/etc/genv/hosts.yaml", "hosts: [{name: gpu-01, address: 127.0.0.1}, {name: gpu-02, address: 127.0.0.9}]\n", 0o644)
	m.must("systemctl", "reload", unit)
	m.await(unit, "1 of 2 hosts answered")
	require.Equal(t, "success", m.show(unit, "ReloadResult"))
	m.refusesAPolicy(unit)

	// A package that can't be unpacked leaves the service alone, a good one restarts it.
	pid := m.show(unit, "MainPID")
	deb, err := os.ReadFile(only(t, pack(t, "v1.0.1"), "*.deb"))
	require.NoError(t, err)
	m.write("/tmp/cut.deb", string(deb[:len(deb)/2]), 0o644)
	out, err = m.run("dpkg", "--install", "/tmp/cut.deb")
	require.Error(t, err, out)
	require.Equal(t, pid, m.show(unit, "MainPID"))
	m.install("v1.0.1")
	require.NotEqual(t, pid, m.show(unit, "MainPID"))
	require.Equal(t, "active", m.show(unit, "ActiveState"))
	m.await(unit, "1 of 2 hosts answered")
	require.Equal(t, "inactive", m.show("genv-enforce.service", "ActiveState"), "what didn't run is not started")
	m.checksThePolicy(unit)

	m.must("systemctl", "stop", unit)
	require.Equal(t, "inactive success", m.show(unit, "ActiveState")+" "+m.show(unit, "Result"), "a host that failed is no failure of the service")
	require.False(t, m.exists("/run/genv-controller"))
	m.must("systemctl", "start", unit)
	m.must("dpkg", "--remove", "genv")
	require.Equal(t, "inactive", m.show(unit, "ActiveState"), "a removal stops the service")
	require.True(t, m.exists("/etc/genv/hosts.yaml"))
	require.True(t, m.exists("/var/log/genv-controller/audit.jsonl"))
	m.must("dpkg", "--purge", "genv")
	require.False(t, m.exists("/etc/systemd/system/multi-user.target.wants/"+unit))
	require.False(t, m.exists("/var/lib/genv-controller"))
}

// refusesAPolicy: a reload fails with a wrong policy, and the status says so until there is a right one.
func (m *machine) refusesAPolicy(unit string) {
	m.t.Helper()
	good := m.must("cat", "/etc/genv/policy.yaml")
	m.write("/etc/genv/policy.yaml", "defaults: {idle: soon}\n", 0o644)
	out, err := m.run("systemctl", "reload", unit)
	require.Error(m.t, err, out)
	m.await(unit, "old hosts and policy in force since ")
	require.Contains(m.t, m.show(unit, "StatusText"), ": /etc/genv/policy.yaml:1:")
	require.Equal(m.t, "active", m.show(unit, "ActiveState"))
	require.Contains(m.t, m.must("journalctl", "--no-pager", "--unit", unit), "/etc/genv/policy.yaml:1:")
	m.write("/etc/genv/policy.yaml", good, 0o644)
	m.must("systemctl", "reload", unit)
	m.await(unit, "\ncycle ") // and nothing of old hosts before it
}

// checksThePolicy: an upgrade doesn't restart a controller that would not start again, and says what to
// change. What the new version only ignores is named, and stops nothing.
func (m *machine) checksThePolicy(unit string) {
	m.t.Helper()
	pid, good := m.show(unit, "MainPID"), m.must("cat", "/etc/genv/policy.yaml")
	configured := m.sh("cat /etc/genv/config.yaml 2>/dev/null || :")
	upgrade := func() string {
		out, err := m.run("dpkg", "--install", "/tmp/genv.deb")
		require.NoError(m.t, err, out)
		return out
	}
	kept := func(says string) {
		m.t.Helper()
		out := upgrade()
		require.Contains(m.t, out, says)
		require.Contains(m.t, out, "genv: "+unit+" was not restarted and still runs the earlier version")
		require.Equal(m.t, pid, m.show(unit, "MainPID"))
		require.Equal(m.t, "active", m.show(unit, "ActiveState"))
	}
	m.write("/etc/genv/policy.yaml", good+"\ncolour: red\n", 0o644)
	kept(`unknown key "colour"`)
	m.write("/etc/genv/policy.yaml", good, 0o644)
	m.write("/etc/genv/config.yaml", "controllers: {fanout: 3}\n", 0o644)
	kept(`/etc/genv/config.yaml:1:1: unknown key "controllers"; `)
	m.write("/etc/genv/other.yaml", "defaults: {idle: soon}\n", 0o644)
	m.write("/etc/genv/config.yaml", "enforce:\n  policy: '/etc/genv/other.yaml'  # ours\n", 0o644)
	kept("/etc/genv/other.yaml:1:")
	m.write("/etc/genv/other.yaml", "defaults: {extend: 2h}\n", 0o644)
	out := upgrade()
	require.Contains(m.t, out, "/etc/genv/other.yaml:1:20: warning: extend is ignored")
	require.NotContains(m.t, out, "was not restarted")
	require.NotEqual(m.t, pid, m.show(unit, "MainPID"))
	m.await(unit, "1 of 2 hosts answered")
	m.write("/etc/genv/config.yaml", configured, 0o644)
}

// checkConfinement looks at what the kernel says of the running controller.
func (m *machine) checkConfinement(unit string) {
	m.t.Helper()
	status := m.must("cat", "/proc/"+m.show(unit, "MainPID")+"/status")
	uid := strings.TrimSpace(m.must("id", "-u", "genv"))
	for _, line := range []string{"Uid:\t" + uid + "\t", "NoNewPrivs:\t1", "Seccomp:\t2", "CapBnd:\t0000000000000000"} {
		require.Contains(m.t, status, line)
	}
	require.Equal(m.t, "genv 755", m.owner("/run/genv-controller"))
	require.Regexp(m.t, "^genv 6[06]0$", m.owner("/run/genv-controller/controller.sock"))
	require.Equal(m.t, "genv 700", m.owner("/var/lib/genv-controller"))
	require.Equal(m.t, "genv 640", m.owner("/var/log/genv-controller/audit.jsonl"), "the group sees what the socket serves")
	m.must("curl", "--silent", "--fail", "--unix-socket", "/run/genv-controller/controller.sock", "http://controller/api/v1/fleet")
}

// TestEnforceUnderSystemd: genv-enforce.service ends a process of a user that uses a GPU
// without being attached to it, and tells the user, through all its hardening.
func TestEnforceUnderSystemd(t *testing.T) {
	const unit = "genv-enforce.service"
	m := startGPUHost(t)
	m.must("useradd", "--create-home", "alice")
	m.write("/etc/genv/policy.yaml", "defaults: {non-env-processes: true}\n", 0o644)
	m.hasten(unit)
	m.must("systemctl", "start", unit)
	m.await(unit, "1 of 1 host answered, 0 findings")
	require.Equal(t, "root 755", m.owner("/run/genv"))
	require.Empty(t, m.show(unit, "DeviceAllow"), "GPUs and terminals are reachable")
	require.Equal(t, "auto", m.show(unit, "DevicePolicy"))

	// A process of alice on a terminal, and as if it used a GPU.
	m.must("systemd-run", "--quiet", "--unit=alice", "--uid=alice", "--service-type=exec", "script", "--quiet", "--flush", "--command", "sleep 1000", "/home/alice/screen")
	var pid int
	m.until("the process runs", func() bool {
		out, _ := m.run("pgrep", "-u", "alice", "-x", "sleep")
		_, err := fmt.Sscan(out, &pid)
		return err == nil
	})
	require.NoError(t, gpus.Driver{Devices: gpus.H100s("private", 2), Apps: []gpus.App{{PID: pid, UsedMiB: new(int64(1000)), Name: "sleep"}}}.Write(m.path(driverOfTests)))
	m.until("the process ends", func() bool { return !m.exists(fmt.Sprintf("/proc/%d", pid)) })
	require.Contains(t, m.sh("cat /home/alice/screen"), "genv", "the terminal of the user")
	m.until("the outcome is recorded", func() bool { return strings.Contains(m.sh("cat /var/log/genv/enforce.jsonl"), `"terminated"`) })
	m.sh("test -s /var/log/genv/audit.jsonl && test -d /var/lib/genv/enforce && test -d /var/tmp/genv")

	m.must("systemctl", "reload", unit)
	m.must("systemctl", "stop", unit)
	require.Equal(t, "inactive success", m.show(unit, "ActiveState")+" "+m.show(unit, "Result"))
	require.True(t, m.exists("/run/genv"), "controllers that log in have their lock there")
}

// example is the block of docs/several-controllers.md that begins with a line.
func example(t *testing.T, first string) string {
	t.Helper()
	text := proctest.ReadFile(t, "../docs/several-controllers.md")
	_, rest, found := strings.Cut(string(text), "\n"+first)
	require.True(t, found, first)
	block, _, _ := strings.Cut(rest, "\n```\n")
	return first + block + "\n"
}

// TestTwoControllersAsInTheDocs sets up an etcd of three members and two controllers, by what
// docs/several-controllers.md says, on one machine with systemd that is all of theirs.
func TestTwoControllersAsInTheDocs(t *testing.T) {
	m := startMachine(t)
	proctest.NeedPrograms(t, "sshd", "sudo", "ssh-keygen", "openssl", "etcd", "etcdctl")
	m.install("v1.0.0")
	m.asGPUHost()
	m.sh("mount --make-rshared /") // as on a real machine: credentials are mounted for a service
	m.boot()
	m.sh(`ip link add bridge type bridge
		ip addr add 10.0.0.254/24 dev bridge
		ip link set bridge up
		for n in 1 2 3; do
			ip netns add etcd-$n
			ip link add veth$n type veth peer name eth0 netns etcd-$n
			ip link set veth$n master bridge up
			ip -n etcd-$n addr add 10.0.0.$n/24 dev eth0
			ip -n etcd-$n link set eth0 up
			ip -n etcd-$n link set lo up
			echo "10.0.0.$n etcd-$n" >>/etc/hosts
		done`)
	m.write("/certificates", "set -e; mkdir -p /work; cd /work\n"+example(t, "# on one machine: an authority"), 0o644)
	m.sh(". /certificates")

	// Each member has a network and a unit of its own here, which reads /etc/default/etcd-N.
	m.write("/member", "set -e; cd /work\n"+example(t, "# on each machine of etcd"), 0o644)
	m.sh(`for n in 1 2 3; do
		sed "s,/var/lib/etcd/default,/var/lib/etcd/$n,; /^Alias/d; s,^Type=.*,&\\nNetworkNamespacePath=/run/netns/etcd-$n," /lib/systemd/system/etcd.service >/etc/systemd/system/etcd-$n.service
		sed "s,/etc/default/etcd,&-$n,; s,systemctl \(start.*\|enable\|stop\) etcd,systemctl \1 etcd-$n," /member >/member-$n
	done
	systemctl daemon-reload
	for n in 1 2 3; do . /member-$n; done`)
	m.until("etcd runs", func() bool {
		return m.show("etcd-1.service", "ActiveState")+m.show("etcd-2.service", "ActiveState")+m.show("etcd-3.service", "ActiveState") == "activeactiveactive"
	})
	m.write("/users", "set -e; cd /work\n"+example(t, "# on one machine, once: users")+example(t, "# on each jump host"), 0o644)
	m.sh(". /users")
	require.Equal(t, "root 600", m.owner("/etc/genv/etcd-login"))
	_, err := m.run("sh", "-ec", `cd /work; export ETCDCTL_API=3; etcdctl --cacert ca.pem --endpoints https://etcd-1:2379 --user "genv:$(cat genv-password)" get /other`)
	require.Error(t, err, "it may use its own keys alone")

	m.asFleet()
	m.write("/etc/genv/hosts.yaml", "hosts: [{name: gpu-01, address: 127.0.0.1}]\n", 0o644)
	m.write("/drop-in", example(t, "# systemctl edit genv-controller"), 0o644)
	m.sh(`sed s/genv-controller/genv-other/g /usr/lib/systemd/system/genv-controller.service >/etc/systemd/system/genv-other.service
		for unit in controller other; do
			mkdir /etc/systemd/system/genv-$unit.service.d
			sed "s,/genv-controller/,/genv-$unit/," /drop-in >/etc/systemd/system/genv-$unit.service.d/override.conf
		done
		systemctl daemon-reload`)
	require.Empty(t, m.must("systemd-analyze", "verify", "--man=no", "genv-controller.service"))
	if out, err := m.run("systemctl", "start", "genv-controller"); err != nil {
		require.NoError(t, err, "%s%s", out, m.must("journalctl", "--no-pager", "-u", "genv-controller"))
	}
	m.await("genv-controller.service", "1 of 1 host answered")
	says := func(unit, words string) {
		t.Helper()
		m.until(unit+" says "+words, func() bool { return strings.Contains(m.must("journalctl", "--no-pager", "-u", unit), words) })
	}
	says("genv-controller", "this controller leads")
	require.NotContains(t, m.must("journalctl", "--no-pager", "-u", "genv-controller"), "without TLS")
	m.must("systemctl", "start", "genv-other")
	says("genv-other", "standby; ")
	m.must("systemctl", "stop", "genv-controller")
	says("genv-other", "this controller leads")
}
