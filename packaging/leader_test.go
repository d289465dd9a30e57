package packaging

import (
	"os"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// example is the block of docs/several-controllers.md that begins with a line.
func example(t *testing.T, first string) string {
	t.Helper()
	text, err := os.ReadFile("../docs/several-controllers.md")
	require.NoError(t, err)
	_, rest, found := strings.Cut(string(text), "\n"+first)
	require.True(t, found, first)
	block, _, _ := strings.Cut(rest, "\n```\n")
	return first + block + "\n"
}

// TestTwoControllersAsInTheDocs sets up an etcd of three members and two controllers, by what
// docs/several-controllers.md says, on one machine with systemd that is all of theirs.
func TestTwoControllersAsInTheDocs(t *testing.T) {
	m := startMachine(t)
	need(t, "sshd", "sudo", "ssh-keygen", "openssl", "etcd", "etcdctl")
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
	for deadline := time.Now().Add(time.Minute); m.show("etcd-1.service", "ActiveState")+m.show("etcd-2.service", "ActiveState")+m.show("etcd-3.service", "ActiveState") != "activeactiveactive"; time.Sleep(100 * time.Millisecond) {
		require.True(t, time.Now().Before(deadline), m.must("journalctl", "--no-pager", "--lines=50"))
	}
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
		require.Eventually(t, func() bool { return strings.Contains(m.must("journalctl", "--no-pager", "-u", unit), words) }, time.Minute, 100*time.Millisecond, "%s", words)
	}
	says("genv-controller", "this controller leads")
	require.NotContains(t, m.must("journalctl", "--no-pager", "-u", "genv-controller"), "without TLS")
	m.must("systemctl", "start", "genv-other")
	says("genv-other", "standby; ")
	m.must("systemctl", "stop", "genv-controller")
	says("genv-other", "this controller leads")
}
