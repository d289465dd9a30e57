package enforcement_test

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/seed-3119e985/genv/cmd/genv/genvtest"
	"github.com/seed-3119e985/genv/enforce/guard/kernel"
	"github.com/seed-3119e985/genv/remote/testfleet/sshd"
	"github.com/seed-3119e985/genv/snapshot/proc/proctest"
)

// guardedGenv is a genv whose hosts have their guard in a cgroup of the test's own, and pins in a bpffs of the fleet.
func guardedGenv(t *testing.T) (program, cgroup string) {
	t.Helper()
	report := kernel.Probe(kernel.Location{Unpinned: true})
	if report.Err != nil {
		require.NotEqual(t, "true", os.Getenv("CI"), "CI=true, so the guard's tests must run, but %v", report.Err)
		t.Skipf("skipped, because it needs a kernel that can be guarded: %v", report.Err)
	}
	var root string
	for _, a := range report.Abilities {
		if a.Name == "cgroup2" {
			root = strings.TrimSuffix(a.Detail, ", which is not the machine's root cgroup: processes outside it are not guarded")
		}
	}
	cgroup = proctest.Try(os.MkdirTemp(root, "genv-guard-test-")).OK(t)
	t.Cleanup(func() {
		require.Eventually(t, func() bool { return os.Remove(cgroup) == nil }, 10*time.Second, 10*time.Millisecond)
	})
	bpf := t.TempDir()
	program = filepath.Join(t.TempDir(), "genv")
	script := fmt.Sprintf("#!/bin/sh\n[ \"$(stat -f -c %%T %[1]s)\" = bpf_fs ] || [ \"$(id -u)\" != 0 ] || mount -t bpf bpf %[1]s\n"+
		"export GENV_GUARD_PINS=%[1]s/genv GENV_GUARD_CGROUP=%[2]s\nexec %[3]s \"$@\"\n", bpf, cgroup, genvtest.Program(t))
	require.NoError(t, proctest.WriteProgram(program, []byte(script)))
	return program, cgroup
}

// openIn opens a node in a cgroup as a user who has no attachment, and says how that ended.
func openIn(t *testing.T, cgroup, node string) string {
	t.Helper()
	folder := proctest.Try(os.Open(cgroup)).OK(t)
	defer folder.Close()
	cmd := exec.Command("/bin/sh", "-c", `: < "$0"`, node)
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: 4321, Gid: 4321}, UseCgroupFD: true, CgroupFD: int(folder.Fd())}
	out, _ := cmd.CombinedOutput()
	switch {
	case strings.Contains(string(out), "Operation not permitted"):
		return "denied"
	case strings.Contains(string(out), "No such device or address"):
		return "allowed"
	}
	return string(out)
}

// TestAPolicyGuardsAHost: over a real sshd and sudo, from the policy file to the kernel that denies an open, and back.
func TestAPolicyGuardsAHost(t *testing.T) {
	sshd.Require(t)
	program, cgroup := guardedGenv(t)
	b := &tampered{sshd.Start(t, sshd.Options{Hosts: sshd.Named("gpu-01"), Genv: program}), t}
	require.NoError(t, b.Host("gpu-01").WriteProc())
	dev := t.TempDir()
	require.NoError(t, os.Chmod(filepath.Dir(dev), 0o755))
	require.NoError(t, os.Chmod(dev, 0o755))
	node := filepath.Join(dev, "nvidia0")
	require.NoError(t, unix.Mknod(node, unix.S_IFCHR|0o666, int(unix.Mkdev(195, 0))))
	require.NoError(t, os.Chmod(node, 0o666))
	require.Equal(t, "allowed", openIn(t, cgroup, node))

	log := filepath.Join(t.TempDir(), "audit.log")
	policy := b.policy("defaults: {guard: enforce}\n")
	r := b.enforce("gpu-01", "--policy", policy, "--dry-run")
	require.Contains(t, r.Out+r.Err, "would set the kernel guard to enforce (dry run)")
	require.Equal(t, "allowed", openIn(t, cgroup, node))

	stop := make(chan struct{})
	denied := make(chan bool, 1)
	go func() {
		defer close(denied)
		for {
			select {
			case <-stop:
				return
			case <-time.After(50 * time.Millisecond):
			}
			if openIn(t, cgroup, node) == "denied" {
				denied <- true
				return
			}
		}
	}()
	r = apart(t, "remote", "enforce", "-F", b.SSHConfig(), "-H", "gpu-01", "--interval", "1", "--cycles", "5", "--policy", policy, "--audit-log", log)
	close(stop)
	require.True(t, <-denied, r.Out+r.Err)
	require.Contains(t, r.Out+r.Err, "the kernel guard is enforcing")
	require.Contains(t, r.Out+r.Err, "users opened GPUs that are not attached to them")
	require.Equal(t, "denied", openIn(t, cgroup, node), "the controller is gone, and the lease holds")
}
