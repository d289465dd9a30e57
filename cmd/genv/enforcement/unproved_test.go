package enforcement_test

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/seed-3119e985/genv/cmd/genv/enforcement"
	"github.com/seed-3119e985/genv/cmd/genv/genvtest"
	"github.com/seed-3119e985/genv/enforce"
	"github.com/seed-3119e985/genv/remote/testfleet"
	"github.com/seed-3119e985/genv/remote/testfleet/sshd"
)

// TestUnproved: over a real sshd and sudo, on a host with NVIDIA's device nodes: a process that the driver lists
// and that has none open is named and left alone.
func TestUnproved(t *testing.T) {
	t.Parallel()
	f := sshd.Start(t, sshd.Options{Hosts: sshd.Named("gpu-01"), Genv: genvtest.Program(t)})
	h := f.Host("gpu-01")
	node := filepath.Join(h.Dev, "nvidiactl")
	if err := unix.Mknod(node, unix.S_IFCHR|0o666, int(unix.Mkdev(195, 255))); err != nil {
		t.Skip(err)
	}
	fd, err := unix.Open(node, unix.O_PATH|unix.O_CLOEXEC, 0) // there is no driver to open it
	require.NoError(t, err)
	open := os.NewFile(uintptr(fd), node)
	defer open.Close()
	outside := testfleet.Job{User: "bob", Env: genvtest.Outside, Uses: []testfleet.Use{{Device: 0, MiB: 10}}}
	unproved, err := h.StartJob(outside)
	require.NoError(t, err)
	outside.Files = []*os.File{open}
	proved, err := h.StartJob(outside)
	require.NoError(t, err)
	d := startDaemon(t, nil, "-F", f.SSHConfig(), "-H", "gpu-01", "--interval", "1", "--state-dir", t.TempDir(), "--non-env-processes")
	<-proved.Ended()
	d.next(func(c enforcement.CycleDocument) bool {
		return slices.ContainsFunc(c.Notes, func(n enforce.Note) bool { return strings.Contains(n.Text, "(unproved)") })
	})
	require.True(t, unproved.Running())
	d.signal(os.Interrupt)
	d.end()
}
