package local_test

import (
	"bufio"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/seed-3119e985/genv/enforce"
	"github.com/seed-3119e985/genv/enforce/policy"
	"github.com/seed-3119e985/genv/enforce/rules"
	"github.com/seed-3119e985/genv/snapshot"
	"github.com/seed-3119e985/genv/snapshot/hardware"
	snapshotlocal "github.com/seed-3119e985/genv/snapshot/local"
	"github.com/seed-3119e985/genv/snapshot/proc"
	"github.com/seed-3119e985/genv/snapshot/proc/proctest"
	"github.com/seed-3119e985/genv/snapshot/state"
	"github.com/seed-3119e985/genv/snapshot/state/disk"
)

// scratch is a GPU host with a real login shell of an ordinary user, and root's real looks at it.
type scratch struct {
	t       *testing.T
	dir     string
	uid     snapshot.UID
	store   *disk.Store
	shell   *exec.Cmd
	program string // sets a title over its environ
	in      io.Writer
	out     *bufio.Reader
}

func newScratch(t *testing.T, owned bool) *scratch {
	proctest.NeedRoot(t)
	s := &scratch{t: t, dir: t.TempDir()}
	require.NoError(t, os.Chmod(filepath.Dir(s.dir), 0o755))
	require.NoError(t, os.Chmod(s.dir, 0o755))
	config := disk.Config{}
	if owned {
		config.RootDir = filepath.Join(s.dir, "root")
	}
	s.store = disk.New(filepath.Join(s.dir, "state"), config)
	if owned {
		_, _, err := s.store.TakeOver(t.Context(), nil)
		require.NoError(t, err)
	}
	fifo := filepath.Join(s.dir, "never")
	require.NoError(t, unix.Mkfifo(fifo, 0o666))
	require.NoError(t, os.Chmod(fifo, 0o666))
	var attr *syscall.SysProcAttr
	s.uid, s.program, attr = proctest.OrdinaryUser(t)
	s.shell = exec.Command("/bin/sh")
	attr.Setsid = true
	s.shell.SysProcAttr, s.shell.Dir = attr, "/"
	s.shell.Env = []string{roleVariable + "=titled", promptEnd, "PATH=" + os.Getenv("PATH"), "P=" + s.program, "NEVER=" + fifo, "TMUX_TMPDIR=/tmp", "GO=" + filepath.Join(s.dir, "go")}
	c := started(t, s.shell)
	s.in, s.out = c.in, c.out
	t.Cleanup(func() { s.end(); s.killAll() })
	s.look(s.pid()) // registers the GPU
	return s
}

// killAll ends what the user still runs: no other test has the uid.
func (s *scratch) killAll() {
	pids := proctest.Try(proc.FS{}.PIDs()).OK(s.t)
	for _, pid := range pids {
		if uid, err := (proc.FS{}).UID(pid); err == nil && uid == s.uid && uid != 0 {
			_ = unix.Kill(int(pid), unix.SIGKILL)
		}
	}
}

// run has the shell run a command that prints a line.
func (s *scratch) run(command string) string {
	proctest.Try(fmt.Fprintln(s.in, command)).OK(s.t)
	line := proctest.Try(s.out.ReadString('\n')).OK(s.t)
	return strings.TrimSpace(line)
}

// job is run for a command that prints the PID of a job, which sets a title.
func (s *scratch) job(command string) snapshot.PID {
	pid := proctest.Try(strconv.Atoi(s.run(command))).OK(s.t)
	require.Eventually(s.t, func() bool { // until then it is a copy of its shell
		name, err := os.ReadFile(fmt.Sprintf("/proc/%d/environ", pid))
		return err == nil && (strings.Contains(string(name), envVariable) || hasTitle(snapshot.PID(pid)))
	}, 30*time.Second, 5*time.Millisecond)
	return snapshot.PID(pid)
}

func (s *scratch) titled(pid snapshot.PID) snapshot.PID {
	require.Eventually(s.t, func() bool { return hasTitle(pid) }, 10*time.Second, 5*time.Millisecond)
	return pid
}

// activate does what `genv activate` does in the shell.
func (s *scratch) activate(eid snapshot.EnvID) {
	s.update(func(f *state.Files) error {
		if err := f.Activate(state.Activation{EID: eid, UID: s.uid, PID: s.pid(), At: snapshot.DateOf(time.Now())}); err != nil {
			return err
		}
		_, err := f.Attach(state.AttachRequest{EID: eid, Count: 1, OverSubscribe: true, At: snapshot.DateOf(time.Now())})
		return err
	})
	s.run("export " + envVariable + "=" + string(eid) + "; echo")
}

// deactivate does what `genv deactivate` does.
func (s *scratch) deactivate() {
	s.update(func(f *state.Files) error { f.Deactivate(s.pid()); return nil })
	s.run("unset " + envVariable + "; echo")
}

func (s *scratch) pid() snapshot.PID { return snapshot.PID(s.shell.Process.Pid) }

func (s *scratch) update(change func(*state.Files) error) {
	require.NoError(s.t, s.store.Update(s.t.Context(), change))
}

// end ends the shell at once, as a lost connection does.
func (s *scratch) end() {
	_ = s.shell.Process.Kill()
	_ = s.shell.Wait()
}

// look is what root sees of a process on the GPU, each time as another genv.
func (s *scratch) look(pid snapshot.PID) (*snapshot.Snapshot, snapshot.Process) {
	machine := &snapshotlocal.Collector{SMI: lists{pid}, StateFiles: s.store, Now: time.Now, Hardware: hardware.Catalog{Root: true}}
	seen := proctest.Try(machine.Snapshot(s.t.Context())).OK(s.t)
	require.Len(s.t, seen.Processes, 1)
	return seen, seen.Processes[0]
}

// strict ends whatever is outside of its environment, or unknown.
const strict = "defaults: {non-env-processes: true, env-devices: true, unknown-environment: outside}\n"

// keeps requires that a job has its environment and GPU, for the state files, a snapshot and the rules.
func (s *scratch) keeps(job snapshot.PID, eid snapshot.EnvID) {
	s.t.Helper()
	files := proctest.Try(s.store.Read(s.t.Context())).OK(s.t)
	require.NotNil(s.t, files.Environment(eid), "it lives")
	require.NotEmpty(s.t, files.AttachedTo(eid))
	seen, p := s.look(job)
	require.Equal(s.t, eid, p.EID)
	require.False(s.t, p.EnvUnknown)
	file := proctest.Try(policy.Parse("policy.yaml", []byte(strict))).OK(s.t)
	cluster := snapshot.Cluster{Hosts: []snapshot.Host{{Name: "gpu-01", Snapshot: seen}}}
	plan, _, _ := rules.Judge(file, cluster, enforce.Memory{}, time.Now())
	require.Empty(s.t, plan.Orders)
}

// ended requires that an environment is gone.
func (s *scratch) ended(eid snapshot.EnvID) {
	s.t.Helper()
	files := proctest.Try(s.store.Read(s.t.Context())).OK(s.t)
	require.Nil(s.t, files.Environment(eid))
}

const (
	background = `nohup "$P" <>"$NEVER" >/dev/null 2>&1 & echo $!`
	// later sets its title when the file is there.
	later = `sh -c 'until [ -e "$GO" ]; do sleep 0.02; done; exec "$P"' <>"$NEVER" >/dev/null 2>&1 & echo $!`
)

// Programs that set a title, as setproctitle does, wipe their environ.
func TestJobsWithTitlesKeepTheirEnvironment(t *testing.T) {
	for name, row := range map[string]func(t *testing.T, s *scratch) snapshot.PID{
		"nohup": func(_ *testing.T, s *scratch) snapshot.PID {
			return s.titled(s.job(background))
		},
		"nohup, seen before": func(_ *testing.T, s *scratch) snapshot.PID {
			job := s.titled(s.job(background))
			s.keeps(job, "E")
			return job
		},
		"nohup, in a session of its own": func(_ *testing.T, s *scratch) snapshot.PID {
			job := s.titled(s.job(`setsid ` + background))
			s.keeps(job, "E")
			return job
		},
		"a double fork": func(t *testing.T, s *scratch) snapshot.PID {
			job := s.job(`(setsid ` + later + `)`)
			s.keeps(job, "E") // its environ still says it
			require.NoError(t, os.WriteFile(filepath.Join(s.dir, "go"), nil, 0o644))
			return s.titled(job)
		},
		"a double fork in the session": func(_ *testing.T, s *scratch) snapshot.PID {
			return s.titled(s.job(`(` + background + `)`))
		},
		"tmux": func(t *testing.T, s *scratch) snapshot.PID {
			proctest.NeedPrograms(t, "tmux")
			socket := fmt.Sprintf("/tmp/genv-tmux-%d-%d", s.uid, os.Getpid())
			t.Cleanup(func() { _ = os.Remove(socket) })
			pane := s.job(`tmux -S ` + socket + ` -f /dev/null new-session -dP -F '#{pane_pid}' '"$P"; :'`)
			return s.titled(childOf(t, pane))
		},
		"the workers of Ray": func(t *testing.T, s *scratch) snapshot.PID {
			raylet := s.job(`setsid sh -c '"$P" <>"$NEVER" & wait' >/dev/null 2>&1 & echo $!`)
			return s.titled(childOf(t, raylet))
		},
	} {
		for regime, owned := range map[string]bool{"shared": false, "root's": true} {
			t.Run(name+"/"+regime, func(t *testing.T) {
				s := newScratch(t, owned)
				s.activate("E")
				job := row(t, s)
				s.end()
				s.keeps(job, "E")
				s.keeps(job, "E")
				require.NoError(t, unix.Kill(int(job), unix.SIGKILL))
				s.killAll()
				require.Eventually(t, func() bool {
					files, err := s.store.Read(t.Context())
					return err == nil && files.Environment("E") == nil
				}, 30*time.Second, 50*time.Millisecond, "it ends with the job")
			})
		}
	}
}

// childOf waits for the child of a process.
func childOf(t *testing.T, parent snapshot.PID) (child snapshot.PID) {
	require.Eventually(t, func() bool {
		list, _ := os.ReadFile(fmt.Sprintf("/proc/%d/task/%d/children", parent, parent))
		pid, err := strconv.Atoi(strings.TrimSpace(string(list)))
		child = snapshot.PID(pid)
		return err == nil
	}, 30*time.Second, 5*time.Millisecond)
	return child
}

func TestDeactivateEndsWhatItShould(t *testing.T) {
	for regime, owned := range map[string]bool{"shared": false, "root's": true} {
		t.Run("only the shell carried it/"+regime, func(t *testing.T) {
			s := newScratch(t, owned)
			s.run(`sleep 60 >/dev/null & echo`) // from before the activation
			s.activate("E")
			s.deactivate()
			s.ended("E")
			s.activate("OTHER")
			job := s.titled(s.job(background))
			s.ended("E")
			s.keeps(job, "OTHER")
		})
		t.Run("a shell that names it in its environ/"+regime, func(t *testing.T) {
			s := newScratch(t, owned)
			s.activate("E")
			first := s.job(background)
			// As in a pane of tmux, the shell's environ names E for ever.
			s.run(`exec sh -c 'echo; exec sh'`)
			s.keeps(s.titled(first), "E")
			s.deactivate()
			s.keeps(first, "E")
			outside := proctest.Try(strconv.Atoi(s.run(`sleep 60 >/dev/null & echo $!`))).OK(t)
			require.Eventually(t, func() bool { // until then it is a copy of its shell
				stat, err := proc.FS{}.Stat(snapshot.PID(outside))
				return err == nil && stat.Name == "sleep"
			}, 30*time.Second, 5*time.Millisecond)
			_, p := s.look(snapshot.PID(outside))
			require.Empty(t, p.EID)
			require.False(t, p.EnvUnknown, "its shell has left")
			require.NoError(t, unix.Kill(int(first), unix.SIGKILL))
			require.Eventually(t, func() bool { return unix.Kill(int(first), 0) != nil || isZombieOf(first) }, 30*time.Second, 5*time.Millisecond)
			s.ended("E")
			s.activate("OTHER")
			s.keeps(s.titled(s.job(background)), "OTHER")
			s.ended("E")
		})
		t.Run("a job with a title goes on/"+regime, func(t *testing.T) {
			s := newScratch(t, owned)
			s.activate("E")
			job := s.titled(s.job(background))
			s.deactivate()
			s.keeps(job, "E")
			s.update(func(f *state.Files) error {
				return f.Activate(state.Activation{EID: "OTHER", UID: s.uid, PID: s.pid(), At: snapshot.DateOf(time.Now())})
			})
			s.keeps(job, "E")
		})
	}
}

func isZombieOf(pid snapshot.PID) bool {
	stat, err := proc.FS{}.Stat(pid)
	return err != nil || stat.Gone()
}

// A process of another user is never in the environment, no matter who started it.
func TestATitleOfAnotherUser(t *testing.T) {
	s := newScratch(t, false)
	s.activate("E")
	other := exec.Command(s.program)
	other.Env = []string{roleVariable + "=titled", promptEnd, envVariable + "=E"}
	other.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: uint32(s.uid) + 1, Gid: 1}, Pdeathsig: syscall.SIGKILL}
	c := started(t, other)
	_, p := s.look(s.titled(c.pid()))
	require.True(t, p.EnvUnknown)
	s.update(func(f *state.Files) error { // forged
		f.Environment("E").PIDs = append(f.Environment("E").PIDs, c.pid())
		f.Answers = append(f.Answers, snapshot.Answer{PID: c.pid(), Start: p.Start, UID: s.uid, EID: "E"})
		return nil
	})
	_, p = s.look(c.pid())
	require.Empty(t, p.EID)
}
