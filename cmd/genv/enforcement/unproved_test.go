package enforcement_test

import (
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/seed-3119e985/genv/cmd/genv/enforcement"
	"github.com/seed-3119e985/genv/cmd/genv/genvtest"
	"github.com/seed-3119e985/genv/enforce"
	"github.com/seed-3119e985/genv/remote/testfleet"
	"github.com/seed-3119e985/genv/remote/testfleet/sshd"
)

// TestUnproved: over a real sshd and sudo, on a host with NVIDIA's device nodes: a process that the driver lists
// and that has none open is named and left alone, with who has one open; what it is attached to is taken.
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
	env, err := h.Activate(testfleet.Environment{User: "bob"})
	require.NoError(t, err)
	require.NoError(t, h.Attach(env, 0, time.Now()))
	job := func(of []string, files []*os.File, uses ...testfleet.Use) *testfleet.Process {
		p, err := h.StartJob(testfleet.Job{User: "bob", Env: of, Uses: uses, Files: files})
		require.NoError(t, err)
		return p
	}
	use := testfleet.Use{Device: 0, MiB: 10}
	holder := job(genvtest.Outside, []*os.File{open})
	unproved := job([]string{env.Var()}, nil, use)
	proved := job(genvtest.Outside, []*os.File{open}, use)
	d := startDaemon(t, nil, "-F", f.SSHConfig(), "-H", "gpu-01", "--interval", "1", "--state-dir", t.TempDir(), "--non-env-processes", "--max-devices-per-user", "0")
	<-proved.Ended()
	d.next(func(c enforcement.CycleDocument) bool {
		return slices.ContainsFunc(c.Notes, func(n enforce.Note) bool {
			return strings.Contains(n.Text, "(unproved): process "+strconv.Itoa(int(holder.PID))+" of the same user")
		})
	})
	d.next(func(enforcement.CycleDocument) bool {
		devices, err := h.Devices()
		require.NoError(t, err)
		return len(devices[0].Attachments) == 0
	})
	require.True(t, unproved.Running())
	d.signal(os.Interrupt)
	d.end()
}
