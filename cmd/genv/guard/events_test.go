package guard

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"
	"unsafe"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"github.com/cilium/ebpf/link"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/seed-3119e985/genv/enforce/guard"
	"github.com/seed-3119e985/genv/remote/agent"
	"github.com/seed-3119e985/genv/remote/testfleet"
	"github.com/seed-3119e985/genv/remote/testfleet/gpus"
	"github.com/seed-3119e985/genv/snapshot"
	"github.com/seed-3119e985/genv/snapshot/proc/proctest"
	"github.com/seed-3119e985/genv/snapshot/watch"
)

// answeringSMI gives the site an nvidia-smi that answers.
func (s *site) answeringSMI() {
	s.Helper()
	devices := gpus.H100s(filepath.Base(s.dir), 4)
	for index := range devices {
		devices[index].UUID = fmt.Sprint("GPU-", index)
	}
	file, program := filepath.Join(s.dir, "gpus.json"), filepath.Join(s.dir, "driver", "nvidia-smi")
	require.NoError(s, gpus.Driver{Devices: devices}.Write(file))
	require.NoError(s, os.Mkdir(filepath.Dir(program), 0o755))
	require.NoError(s, testfleet.InstallProgram("remote/testfleet/gpus/nvidia-smi", program))
	require.NoError(s, proctest.WriteProgram(filepath.Join(s.dir, "nvidia-smi"), fmt.Appendf(nil, "#!/bin/sh\nGENV_SIM_GPUS=%s exec %s \"$@\"\n", file, program)))
}

// wakes reports whether a wait ends by an event within some time.
func (c *stream) wakes(within time.Duration) bool {
	c.Helper()
	var answer agent.WaitAnswer
	c.ask(agent.RequestWait, agent.WaitRequest{MaxMS: within.Milliseconds()}, &answer)
	return answer.Woke
}

// quiet looks until nothing happens any more.
func (c *stream) quiet() {
	c.Helper()
	require.Eventually(c, func() bool {
		c.ask(agent.RequestSnapshot, agent.SnapshotRequest{}, new(struct{}))
		return !c.wakes(never)
	}, 20*time.Second, time.Millisecond)
}

// never is how long nothing may happen.
const never = 300 * time.Millisecond

// TestAnOpenThroughAnotherNodeWakes: the nodes in the site's folder are not those that the
// streams watch, as those that a container runtime made. The guard sees their opens.
func TestAnOpenThroughAnotherNodeWakes(t *testing.T) {
	t.Parallel()
	for name, row := range map[string]struct {
		mode   guard.Mode
		uid    int
		second bool // another process keeps the guard of the stream
		want   bool
	}{
		"an attached user":                    {guard.Enforce, alice, false, true},
		"another process keeps the guard":     {guard.Enforce, alice, true, true},
		"denied":                              {guard.Enforce, bob, false, false},
		"would be denied":                     {guard.Watch, bob, false, true},
		"root, as in a container":             {guard.Enforce, 0, false, true},
		"off":                                 {guard.Off, alice, false, false},
		"off, while another process waits":    {guard.Off, alice, true, false},
		"root, while a guard only watches it": {guard.Watch, 0, false, true},
	} {
		t.Run(name, func(t *testing.T) {
			s := newSite(t)
			s.answeringSMI()
			a, b := s.person(alice).activate(), s.person(bob)
			a.attach(0)
			keeper := s.serve()
			keeper.order(asked(row.mode, time.Minute))
			if row.mode == guard.Enforce {
				b.until("denied", 0)
			} else {
				require.Eventually(t, func() bool { return s.document().Mode == row.mode }, 20*time.Second, 10*time.Millisecond)
			}
			c := keeper
			if row.second {
				c = s.serve()
			}
			p := s.person(row.uid)
			other := filepath.Join(s.dir, "another")
			require.NoError(t, unix.Mknod(other, unix.S_IFCHR|0o666, int(unix.Mkdev(195, 3))))
			require.NoError(t, os.Chmod(other, 0o666))
			require.True(t, c.wakes(time.Second), "the first wait")
			c.quiet()

			began := time.Now()
			require.Equal(t, row.want || row.mode == guard.Off || row.uid == 0, p.askPath("open", other) == "allowed")
			within := 10 * time.Second
			if !row.want {
				within = never
			}
			require.Equal(t, row.want, c.wakes(within))
			if row.want {
				t.Logf("after %s", time.Since(began).Round(time.Millisecond))
				require.Equal(t, p.cmd.Process.Pid, int(s.opened()[0]))
			} else {
				require.NoFileExists(t, filepath.Join(s.root, "run", watch.OpenLogFile))
			}
		})
	}
}

// TestStatusSaysWhatReportsOpens: the guard only as long as a process reads its reports.
func TestStatusSaysWhatReportsOpens(t *testing.T) {
	const through = "the guard reports opens of guarded GPUs, through any node"
	s := newSite(t)
	require.False(t, s.document().Events.Guard)
	require.NotContains(t, s.must("guard", "status"), through)
	b, g := s.person(bob), s.run("--mode", "enforce", "--lease", "60s")
	b.until("denied", 0)
	require.Eventually(t, func() bool { return s.document().Events.Guard }, 20*time.Second, 10*time.Millisecond)
	require.Contains(t, s.must("guard", "status"), through)
	g.signal(syscall.SIGKILL)
	require.False(t, b.opens(0))
	require.Equal(t, guard.Enforce, s.document().Mode)
	require.False(t, s.document().Events.Guard)
}

// opened are the PIDs of those who opened a device as the guard says.
func (s *site) opened() []snapshot.PID {
	s.Helper()
	var content struct {
		PIDs []snapshot.PID `json:"pids"`
	}
	require.NoError(s, json.Unmarshal(proctest.ReadFile(s, filepath.Join(s.root, "run", watch.OpenLogFile)), &content))
	return content.PIDs
}

// ability is what a process of genv lacks in a test; empty for nothing.
type ability string

const (
	abilityVariable         = "GENV_GUARD_TEST_ABILITY"
	noBPF           ability = "no BPF"
	lockedDown      ability = "locked down"
	noPermission    ability = "no permission"
)

const securityFolder = "/sys/kernel/security"

// unable runs genv with this process's arguments on a kernel that lacks an ability. Its mount namespace is its own.
func unable() error {
	runtime.LockOSThread() // capabilities and filters are the thread's
	var err error
	switch ability(os.Getenv(abilityVariable)) {
	case noBPF:
		err = refuseBPF(unix.ENOSYS)
	case lockedDown:
		if err = unix.Mount("genv", securityFolder, "tmpfs", 0, ""); err == nil {
			err = os.WriteFile(securityFolder+"/lockdown", []byte("none integrity [confidentiality]\n"), 0o644)
		}
		if err == nil {
			err = refuseBPF(unix.EPERM)
		}
	case noPermission:
		for _, capability := range []uintptr{unix.CAP_BPF, unix.CAP_SYS_ADMIN} {
			if err == nil {
				err = unix.Prctl(unix.PR_CAPBSET_DROP, capability, 0, 0, 0)
			}
		}
	}
	if err != nil {
		return err
	}
	return unix.Exec(filepath.Join(filepath.Dir(os.Args[0]), "genv"), os.Args, os.Environ())
}

// refuseBPF lets bpf(2) fail, with seccomp(2).
func refuseBPF(errno unix.Errno) error {
	const loadNumber, isEqual, answer = unix.BPF_LD | unix.BPF_W | unix.BPF_ABS, unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K, unix.BPF_RET | unix.BPF_K
	filter := []unix.SockFilter{
		{Code: loadNumber},
		{Code: isEqual, K: unix.SYS_BPF, Jf: 1},
		{Code: answer, K: unix.SECCOMP_RET_ERRNO | uint32(errno)},
		{Code: answer, K: unix.SECCOMP_RET_ALLOW},
	}
	program := unix.SockFprog{Len: uint16(len(filter)), Filter: &filter[0]}
	return unix.Prctl(unix.PR_SET_SECCOMP, unix.SECCOMP_MODE_FILTER, uintptr(unsafe.Pointer(&program)), 0, 0)
}

// inTheWay attaches a program to the site's cgroup that shares it with no other.
func (s *site) inTheWay() {
	s.Helper()
	program, err := ebpf.NewProgram(&ebpf.ProgramSpec{
		Name: "foreign", Type: ebpf.CGroupDevice, AttachType: ebpf.AttachCGroupDevice, License: "Apache-2.0",
		Instructions: asm.Instructions{asm.Mov.Imm(asm.R0, 1), asm.Return()},
	})
	require.NoError(s, err)
	folder := proctest.Try(os.Open(s.cgroup)).OK(s)
	require.NoError(s, link.RawAttachProgram(link.RawAttachProgramOptions{Target: int(folder.Fd()), Program: program, Attach: ebpf.AttachCGroupDevice}))
	s.Cleanup(func() { // it ends with the cgroup
		require.NoError(s, program.Close())
		require.NoError(s, folder.Close())
	})
}

// TestKernelsThatCannotGuard: each says why, to an administrator and to a controller, no open is
// denied, and the controller goes on by polling.
func TestKernelsThatCannotGuard(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		make func(s *site)
		says []string
	}{
		"no BPF":        {func(s *site) { s.able = noBPF }, []string{"not supported here", "Linux 5.8 with CONFIG_CGROUP_BPF is needed"}},
		"locked down":   {func(s *site) { s.able = lockedDown }, []string{"no permission", "the kernel is locked down: confidentiality"}},
		"no permission": {func(s *site) { s.able = noPermission }, []string{"no permission", "root with CAP_BPF and CAP_NET_ADMIN is needed"}},
		"foreign":       {func(s *site) { s.inTheWay() }, []string{"another program is in the way", "BPF_F_ALLOW_MULTI"}},
		"no cgroup2":    {func(s *site) { s.folder = s.dir }, []string{"not supported here", "not in a cgroup2 hierarchy"}},
	} {
		t.Run(name, func(t *testing.T) {
			s := newSite(t)
			s.answeringSMI()
			b := s.person(bob)
			if _, err := os.Stat(securityFolder); err != nil && name == "locked down" {
				t.Skipf("skipped, because a lockdown can't be simulated: %v", err)
			}
			c.make(s)
			check := func(text string) {
				t.Helper()
				for _, want := range c.says {
					require.Contains(t, text, want)
				}
			}
			out := s.failsAs(0, "guard", "run", "--mode", "enforce")
			check(out)
			require.Contains(t, out, "no guard is possible here; `genv enforce` works without")
			require.NoFileExists(t, filepath.Join(s.root, "run/guard-order.json"))
			d := s.document()
			require.False(t, d.Kernel.Possible)
			check(d.Kernel.Why)
			check(s.must("guard", "status"))
			stream := s.serve()
			require.Eventually(t, func() bool {
				now := stream.order(asked(guard.Enforce, time.Minute)).State
				return now.Mode == guard.Off && strings.Contains(strings.Join(now.Problems, " "), c.says[0])
			}, 20*time.Second, 50*time.Millisecond)
			var answer agent.SnapshotAnswer
			stream.ask(agent.RequestSnapshot, agent.SnapshotRequest{}, &answer)
			require.Contains(t, string(answer.Snapshot), "H100", "it is polled")
			require.True(t, b.opens(0))
		})
	}
}

// TestRunRefuses says what is wrong, and changes nothing.
func TestRunRefuses(t *testing.T) {
	s := newSite(t)
	for line, want := range map[string]string{
		"":                                    "--mode watch or --mode enforce",
		"--mode off":                          "write watch or enforce",
		"--mode enforce --lease 0":            "--lease",
		"--mode enforce --lease 100ms":        "lease of 100ms",
		"--mode enforce --lease 30h":          "lease of 30h",
		"--mode enforce --first-uid 0":        "--first-uid 0",
		"--mode enforce --exempt-device x":    "--exempt-device",
		"--mode enforce --exempt-device 9999": "index that no GPU can have",
		"--mode enforce --exempt-user a:b":    "can't be the name of a user",
	} {
		require.Contains(t, s.failsAs(0, append([]string{"guard", "run"}, strings.Fields(line)...)...), want, line)
	}
	s.cgroup = s.dir
	out := s.failsAs(0, "guard", "run", "--mode", "enforce")
	s.cgroup = filepath.Join(place, "cgroup", "genv-guard-test-"+filepath.Base(s.dir))
	require.Contains(t, out, "no guard is possible here")
	require.NoDirExists(t, s.pins)
	require.NoFileExists(t, filepath.Join(s.root, "run/guard-order.json"))
}
