package packaging

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestLifeOfAnRPM installs, upgrades and removes with rpm, with its own database. What
// the package depends on is not in that.
func TestLifeOfAnRPM(t *testing.T) {
	m := startMachine(t)
	need(t, "rpm")
	rpm := func(action, version string) string {
		t.Helper()
		m.copyIn(only(t, pack(t, version, "rpm"), "*.rpm"), "/tmp/genv.rpm", 0o644)
		return m.must("rpm", "--nodeps", action, "/tmp/genv.rpm")
	}
	rpm("--install", "v1.0.0")
	require.Contains(t, m.must("getent", "passwd", "genv"), ":/var/lib/genv-controller:/bin/sh")
	require.Equal(t, "genv 700", m.owner("/var/lib/genv-controller"))
	require.Equal(t, "root 755", m.owner("/var/lib/genv"))
	m.must("genv", "version")
	require.Empty(t, m.sh("find /etc/systemd/system -name 'genv*'"), "no service is enabled")
	m.sh("echo '# ours' >>/etc/genv/policy.yaml; echo 'hosts: [a]' >/etc/genv/hosts.yaml; echo x >/var/lib/genv-controller/memory.json")
	m.must("systemctl", "enable", "genv-controller") // works on files alone

	rpm("--upgrade", "v1.0.1")
	require.Contains(t, m.must("rpm", "--query", "genv"), "1.0.1")
	require.Contains(t, m.sh("cat /etc/genv/policy.yaml"), "# ours")
	require.True(t, m.exists("/etc/systemd/system/multi-user.target.wants/genv-controller.service"))

	m.must("rpm", "--erase", "genv")
	m.sh("cat /etc/genv/hosts.yaml /var/lib/genv-controller/memory.json")
	require.Contains(t, m.sh("cat /etc/genv/policy.yaml*"), "# ours", "what was changed is kept as .rpmsave")
	left := m.sh("find /etc/systemd /usr -name '*genv*' ! -path '/usr/local/*' 2>/dev/null || :")
	require.Empty(t, strings.TrimSpace(left))
}
