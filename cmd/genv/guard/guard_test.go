package guard

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/seed-3119e985/genv/enforce/guard"
	"github.com/seed-3119e985/genv/snapshot"
	"github.com/seed-3119e985/genv/snapshot/proc/proctest"
	"github.com/seed-3119e985/genv/snapshot/state"
)

// within is what the tests allow between a change and its effect.
const within = 2 * time.Second

// TestAttachedDevicesOpen: what `genv attach` and `genv detach` change is so in the kernel
// soon, although nvidia-smi hangs.
func TestAttachedDevicesOpen(t *testing.T) {
	s := newSite(t)
	a, b := s.person(alice).activate(), s.person(bob).activate()
	a.attach(0)
	require.True(t, b.opens(0), "there is no guard yet")
	begun := time.Now()
	s.enforce()
	first := b.until("denied", 0)
	t.Logf("first denial %v after the start of the process", first.Sub(begun).Round(time.Millisecond))
	require.True(t, a.opens(0))
	require.False(t, a.opens(1))
	require.False(t, a.opens(3), "the index counts, not the minor")

	s.mustAs(bob, "devices", "attach", "--eid", string(b.eid()), "--index", "2", "-o")
	require.True(t, b.opens(2), "the command returns when the kernel knows it")
	s.mustAs(bob, "devices", "detach", "--eid", string(b.eid()), "--index", "2")
	b.until("denied", 2)

	var attached, detached []time.Duration
	for range 25 {
		attached = append(attached, s.measure(b, "allowed", func() { b.attach(1) }))
		require.False(t, a.opens(1))
		detached = append(detached, s.measure(b, "denied", func() { b.detach(1) }))
	}
	for what, times := range map[string][]time.Duration{"attach to first open": attached, "detach to first denial": detached} {
		slices.Sort(times)
		t.Logf("%s: median %v, most %v", what, times[len(times)/2], times[len(times)-1])
		require.LessOrEqual(t, times[len(times)-1], within)
	}

	b.end()
	require.Eventually(t, func() bool { return len(s.document().Users) == 1 }, 20*time.Second, 50*time.Millisecond, "Bob's environment has ended with his process")
}

// measure is the time between the change of the state files and its effect.
func (s *site) measure(p *person, what string, change func()) time.Duration {
	s.Helper()
	effect := make(chan time.Time)
	go func() { effect <- p.until(what, 1) }()
	change()
	var st unix.Stat_t
	require.NoError(s, unix.Stat(filepath.Join(s.state, "devices.json"), &st))
	return max(0, (<-effect).Sub(time.Unix(st.Mtim.Unix()))).Round(10 * time.Microsecond)
}

func TestTheLeaseEndsAfterAKill(t *testing.T) {
	s := newSite(t)
	b := s.person(bob)
	g := s.run("--mode", "enforce", "--lease", "3s")
	b.until("denied", 0)
	for range 4 { // it is renewed
		time.Sleep(time.Second)
		require.False(t, b.opens(0))
	}
	g.signal(syscall.SIGKILL)
	killed := time.Now()
	require.False(t, b.opens(0), "the pins stay")
	after := b.until("allowed", 0).Sub(killed)
	t.Logf("everything opened %v after kill -9 with a lease of 3 s", after.Round(time.Millisecond))
	require.LessOrEqual(t, after, 3*time.Second+within)
	require.Equal(t, guard.Off, s.document().Mode)
}

func TestASignalEndsTheGuard(t *testing.T) {
	s := newSite(t)
	b := s.person(bob)
	g := s.enforce()
	b.until("denied", 0)
	g.signal(syscall.SIGTERM)
	require.NoError(t, g.err)
	require.True(t, b.opens(0))
	require.NoDirExists(t, s.pins)
	require.NoFileExists(t, filepath.Join(s.root, "run", "guard-order.json"), "a controller may give an order")
	require.Contains(t, s.must("guard", "status"), "off: `genv guard run` has ended")
}

func TestOffAndVeto(t *testing.T) {
	s := newSite(t)
	b := s.person(bob)
	g := s.enforce()
	b.until("denied", 0)
	out := s.must("guard", "off")
	require.True(t, b.opens(0), "at once")
	require.Contains(t, out, "sudo touch "+filepath.Join(s.root, "etc/guard.off"))
	<-g.done
	require.NoError(t, g.err)
	require.Contains(t, g.log.String(), "this process ends")
	require.True(t, b.opens(0))

	g = s.enforce()
	b.until("denied", 0)
	veto := filepath.Join(s.root, "etc/guard.off")
	require.NoError(t, os.MkdirAll(filepath.Dir(veto), 0o755))
	require.NoError(t, os.WriteFile(veto, nil, 0o600))
	b.until("allowed", 0)
	require.True(t, s.document().Veto)
	require.NoError(t, os.Remove(veto))
	b.until("denied", 0)
	require.NoError(t, os.RemoveAll(s.pins), "removing the pins by hand is as good")
	b.until("allowed", 0) // the guard's process may hold the link for a moment
	<-g.done
	require.NoError(t, g.err)

	require.Contains(t, s.must("guard", "off", "--veto"), "as long as")
	require.Contains(t, s.failsAs(0, "guard", "run", "--mode", "watch"), veto+" exists")
}

// TestTakeOver: while one process takes over from another, no open is let through.
func TestTakeOver(t *testing.T) {
	s := newSite(t)
	a, b := s.person(alice).activate(), s.person(bob)
	a.attach(0)
	first := s.enforce()
	b.until("denied", 0)
	second := s.enforce()
	require.Eventually(t, func() bool { return strings.Contains(second.log.String(), "another process keeps the guard") }, 20*time.Second, 10*time.Millisecond)
	first.signal(syscall.SIGKILL)
	for range 300 {
		require.False(t, b.opens(0))
		require.True(t, a.opens(0))
		time.Sleep(time.Millisecond)
	}
	require.Eventually(t, func() bool { return strings.Contains(second.log.String(), "took over") }, 20*time.Second, 10*time.Millisecond)
	require.Equal(t, snapshot.PID(second.cmd.Process.Pid), s.document().Keeper)
	second.signal(syscall.SIGTERM)
	require.True(t, b.opens(0))
}

// TestWatchReportsOnly: and what would be denied is in the status and in the log.
func TestWatchReportsOnly(t *testing.T) {
	s := newSite(t)
	b := s.person(bob)
	s.run("--mode", "watch", "--lease", "60s")
	require.Eventually(t, func() bool { return s.document().Mode == guard.Watch }, 20*time.Second, 20*time.Millisecond)
	require.True(t, b.opens(2))
	require.Eventually(t, func() bool { return len(s.document().Denials) > 0 }, 20*time.Second, 20*time.Millisecond)
	d := s.document().Denials[0]
	require.Equal(t, snapshot.DeviceIndex(2), *d.Index)
	require.False(t, d.Denied)
	require.EqualValues(t, bob, d.UID)
	require.Contains(t, s.must("guard", "status"), "would be denied")
}

// TestUsersLearnWhatWasDenied: in their history, and on their terminals once a minute.
func TestUsersLearnWhatWasDenied(t *testing.T) {
	s := newSite(t)
	terminal := s.terminalOf(bob)
	b := s.person(bob)
	s.enforce()
	b.until("denied", 3)
	for range 5 {
		require.False(t, b.opens(3))
	}
	read := ""
	for !strings.Contains(read, "GPU 3 is not attached to you: genv attach --index 3") {
		buffer := make([]byte, 4096) // also of other guards: tests with the same user run at the same time
		n := proctest.Try(terminal.Read(buffer)).OK(t, read)
		read += string(buffer[:n])
	}
	require.Eventually(t, func() bool {
		out, err := s.genvAs(bob, "history")
		return err == nil && strings.Contains(out, "GPU 3 is not attached: opening it was denied")
	}, 20*time.Second, 50*time.Millisecond)
	out := s.mustAs(bob, "guard", "status")
	require.Contains(t, out, "enforce, until")
	require.Contains(t, out, "only root can ask")
	require.NotContains(t, out, "problem")
	require.Contains(t, s.failsAs(bob, "guard", "off"), "only root")
}

// terminalOf is the master of a terminal that belongs to a user.
func (s *site) terminalOf(uid int) *os.File {
	s.Helper()
	fd, err := unix.Open("/dev/ptmx", unix.O_RDWR|unix.O_NOCTTY|unix.O_CLOEXEC|unix.O_NONBLOCK, 0)
	if err != nil {
		s.Skipf("skipped, because there are no pseudo-terminals: %v", err)
	}
	master := os.NewFile(uintptr(fd), "ptmx")
	s.Cleanup(func() { _ = master.Close() })
	require.NoError(s, unix.IoctlSetPointerInt(fd, unix.TIOCSPTLCK, 0))
	number := proctest.Try(unix.IoctlGetInt(fd, unix.TIOCGPTN)).OK(s)
	path := fmt.Sprintf("/dev/pts/%d", number)
	slave := proctest.Try(os.OpenFile(path, os.O_RDWR|unix.O_NOCTTY, 0)).OK(s)
	s.Cleanup(func() { _ = slave.Close() })
	require.NoError(s, os.Chown(path, uid, uid))
	require.NoError(s, os.Chmod(path, 0o620))
	require.NoError(s, master.SetReadDeadline(time.Now().Add(20*time.Second)))
	return master
}

// TestForgedState: where every user may write the state files, they give a user no more than
// genv's own commands, and garbage takes nothing away.
func TestForgedState(t *testing.T) {
	s := newSite(t)
	a, m := s.person(alice).activate(), s.person(mallory)
	a.attach(0)
	s.enforce()
	m.until("denied", 0)
	require.True(t, a.opens(0))
	files := s.files()
	forged := files.Environments[0]
	forged.EID, forged.UID, forged.Username, forged.PIDs = "f", bob, "root", []snapshot.PID{1, snapshot.PID(m.cmd.Process.Pid)}
	files.Environments = append(files.Environments, forged)
	for i := range files.Devices {
		files.Devices[i].Attachments = append(files.Devices[i].Attachments, snapshot.Attachment{EID: "f", Time: forged.Creation})
	}
	s.forge(state.Envs, files)
	s.forge(state.Devices, files)
	time.Sleep(200 * time.Millisecond)
	require.False(t, s.person(bob).opens(1), "no process of his is registered")
	require.False(t, m.opens(1))
	for _, garbage := range []string{"", "{", "\x00\xff", `{"envs": 7}`, strings.Repeat("[", 100_000), `{"envs": []}`} {
		s.write("envs.json", garbage)
		s.write("devices.json", garbage)
		for range 20 {
			require.True(t, a.opens(0), "Alice's device stays hers")
			require.False(t, m.opens(0))
			time.Sleep(time.Millisecond)
		}
	}
}

// TestAStalledProcess: what ends or is detached is taken away also while a process can't be read that may have to do
// with it. What that process holds stays.
func TestAStalledProcess(t *testing.T) {
	s := serialSite(t)
	a, b, m := s.person(alice).activate(), s.person(bob).activate(), s.person(mallory).activate()
	a.attach(0)
	b.attach(1)
	m.attach(2)
	s.enforce()
	b.until("denied", 0)
	_, _ = proctest.Stall(t, false)
	files := s.files() // a kernel has the command lines of all processes read
	files.Environments = append(files.Environments, snapshot.Environment{EID: "kernel", UID: mallory, KernelIDs: []string{"k"}, Creation: snapshot.DateOf(time.Now())})
	s.forge(state.Envs, files)
	s.mustAs(bob, "devices", "detach", "--eid", string(b.eid()), "--index", "1")
	b.until("denied", 1)
	a.end()
	require.Eventually(t, func() bool { return len(s.document().Users) == 1 }, 20*time.Second, 50*time.Millisecond, "Alice's environment has ended")
	require.True(t, m.opens(2))
}

// TestRootOwnsTheState: where root's service has it, the guard believes only what root has written, and ends with
// its lease.
func TestRootOwnsTheState(t *testing.T) {
	s := newSite(t)
	s.start("host", "serve")
	require.Eventually(t, func() bool { _, err := os.Stat(filepath.Join(s.root, "run", "host.sock")); return err == nil }, 20*time.Second, 10*time.Millisecond)
	g := s.run("--mode", "enforce", "--lease", "4s")
	a, b := s.person(alice).activate(), s.person(bob)
	b.until("denied", 1)
	require.False(t, a.opens(1))
	s.mustAs(alice, "devices", "attach", "--eid", string(a.eid()), "--index", "1", "-o")
	require.True(t, a.opens(1), "the command returns when the kernel knows it")

	var forged state.Files
	forged.Environments = []snapshot.Environment{{EID: "f", UID: bob, PIDs: []snapshot.PID{snapshot.PID(b.cmd.Process.Pid)}, Creation: snapshot.DateOf(time.Now())}}
	forged.Devices = []snapshot.Device{{Index: 1, TotalMemory: snapshot.MiB(1), Attachments: []snapshot.Attachment{{EID: "f", Time: snapshot.DateOf(time.Now())}}}}
	s.forge(state.Envs, &forged)
	s.forge(state.Devices, &forged)
	for range 20 {
		require.False(t, b.opens(1), "that is only a copy")
		time.Sleep(10 * time.Millisecond)
	}
	g.signal(syscall.SIGKILL)
	require.False(t, b.opens(1))
	b.until("allowed", 1)
}

// TestWithoutBPFFS: nothing can be pinned, so the guard is in the process that keeps it, ends
// with that at once, and says so.
func TestWithoutBPFFS(t *testing.T) {
	s := newSite(t)
	s.pins = filepath.Join(s.dir, "pins")
	a, b := s.person(alice).activate(), s.person(bob)
	a.attach(0)
	g := s.enforce()
	b.until("denied", 0)
	require.True(t, a.opens(0))
	require.Eventually(t, func() bool { return s.document().Mode == guard.Enforce }, 20*time.Second, 10*time.Millisecond)
	d := s.document()
	require.True(t, d.Kernel.Possible, d.Kernel.Why)
	require.True(t, d.Unpinned)
	require.Len(t, d.Problems, 1)
	require.Contains(t, d.Problems[0], "mount -t bpf bpf")
	require.Contains(t, s.must("guard", "status"), "it ends at once with process "+fmt.Sprint(g.cmd.Process.Pid))

	require.Contains(t, s.must("guard", "off"), "every user may open")
	require.True(t, b.opens(0), "the command has waited for the process that keeps it")
	<-g.done
	require.NoError(t, g.err)

	g = s.enforce()
	b.until("denied", 0)
	require.Eventually(t, func() bool { return s.document().Unpinned }, 20*time.Second, 10*time.Millisecond)
	g.signal(syscall.SIGSTOP)
	require.Contains(t, s.failsAs(0, "guard", "off"), fmt.Sprintf("sudo kill -KILL %d", g.cmd.Process.Pid))
	require.False(t, b.opens(0))
	g.signal(syscall.SIGKILL)
	b.until("allowed", 0)
	require.Equal(t, guard.Off, s.document().Mode)
	require.NoDirExists(t, s.pins)

	// Another process that got its PID isn't taken for it, and isn't to be killed.
	said := proctest.Try(guard.ReadStatus(filepath.Join(s.root, "run"))).OK(t)
	said.Keeper = snapshot.PID(os.Getpid())
	require.NoError(t, guard.WriteStatus(filepath.Join(s.root, "run"), said))
	require.Equal(t, guard.Off, s.document().Mode)
	require.Contains(t, s.must("guard", "off"), "every user may open")
}

func TestExemptions(t *testing.T) {
	s := newSite(t)
	a, b := s.person(alice), s.person(bob)
	s.run("--mode", "enforce", "--first-uid", "2000", "--exempt-user", fmt.Sprint(alice), "--exempt-device", "2")
	b.until("denied", 0)
	require.True(t, a.opens(0))
	require.True(t, b.opens(2))
	require.False(t, b.opens(1))
	out := s.must("guard", "status")
	require.Contains(t, out, "all, exempt")
	require.Contains(t, out, "no: it is exempt")
}
