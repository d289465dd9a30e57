package packaging

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestUnitsAreValid has systemd read the units where the package is installed.
func TestUnitsAreValid(t *testing.T) {
	m := startMachine(t)
	need(t, "systemd-analyze")
	m.install("v1.0.0")
	for _, unit := range []string{"genv-controller.service", "genv-enforce.service", "genv-host.service", "genv-host.socket"} {
		out := m.must("systemd-analyze", "verify", "--man=no", "/usr/lib/systemd/system/"+unit)
		require.Empty(t, out, unit)
	}
	m.must("systemd-tmpfiles", "--create", "genv.conf")
	require.Equal(t, "root 755", m.owner("/run/genv"))
	m.sh("mkdir -p /var/tmp/genv; echo '{}' >/var/tmp/genv/envs.json; touch -d '2000-01-01' /var/tmp/genv/envs.json /var/tmp/genv")
	m.must("systemd-tmpfiles", "--clean")
	require.True(t, m.exists("/var/tmp/genv/envs.json"), "state files don't grow old")
}

// TestUnitsAreHardened keeps the exposure that systemd computes, from 0 to 10, low.
func TestUnitsAreHardened(t *testing.T) {
	need(t, "systemd-analyze")
	for unit, threshold := range map[string]string{"genv-controller.service": "18", "genv-enforce.service": "40", "genv-host.service": "80"} {
		path, err := filepath.Abs(filepath.Join("systemd", unit))
		require.NoError(t, err)
		out, err := exec.Command("systemd-analyze", "security", "--offline=true", "--no-pager", "--threshold="+threshold, path).CombinedOutput()
		require.NoError(t, err, string(out))
	}
}

// TestTheHostServiceHasNoMountsOfItsOwn: the guard's pins are in /sys/fs/bpf, which all of
// the machine has to see.
func TestTheHostServiceHasNoMountsOfItsOwn(t *testing.T) {
	unit, err := os.ReadFile("systemd/genv-host.service")
	require.NoError(t, err)
	require.NotRegexp(t, `(?m)^(Private\w+|Protect(System|Home|Kernel\w*|ControlGroups|Proc|Hostname)|Read(Write|Only)Paths|InaccessiblePaths|ExecPaths|NoExecPaths|BindPaths|BindReadOnlyPaths|TemporaryFileSystem|Mount\w+|Root\w+|DynamicUser|ProcSubset|RemoveIPC)=`, string(unit))
}
