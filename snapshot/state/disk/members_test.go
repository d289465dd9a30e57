package disk_test

import (
	"io/fs"
	"os"
	"strconv"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/seed-3119e985/genv/snapshot"
	"github.com/seed-3119e985/genv/snapshot/proc"
	"github.com/seed-3119e985/genv/snapshot/state"
	"github.com/seed-3119e985/genv/snapshot/state/disk"
	"github.com/seed-3119e985/genv/snapshot/state/system"
)

const alice, bob = snapshot.UID(1001), snapshot.UID(1002)

// job is a process that carries an id.
func job(pid snapshot.PID, uid snapshot.UID, eid snapshot.EnvID) system.RunningProcess {
	return system.RunningProcess{PID: pid, Parent: 1, Start: snapshot.StartTime(pid), UID: uid, EID: eid, Name: "python"}
}

func with(r system.RunningProcess, change func(*system.RunningProcess)) system.RunningProcess {
	change(&r)
	return r
}

// unread is a process with an environ that could not be read.
func unread(pid snapshot.PID, uid snapshot.UID, why error) system.RunningProcess {
	return with(job(pid, uid, ""), func(r *system.RunningProcess) { r.Unread = why })
}

// An environment lives as long as its user's work: 1102 of alice, of which nothing that is registered lives.
func TestAnEnvironmentLastsWhileItsUsersProcessesRun(t *testing.T) {
	wiped := func(parent snapshot.PID) func(*system.RunningProcess) {
		return func(r *system.RunningProcess) { r.Unread, r.EID, r.Parent = proc.ErrOverwritten, "", parent }
	}
	hidden := func(name string) func(*system.RunningProcess) {
		return func(r *system.RunningProcess) { r.Unread, r.EID, r.Name = fs.ErrPermission, "", name }
	}
	for _, tt := range []struct {
		name    string
		running []system.RunningProcess
		hidden  bool
		want    []snapshot.PID // nil for an environment that ends
	}{
		{"nothing runs", nil, false, nil},
		{"a job carries its id", []system.RunningProcess{job(50, alice, "1102")}, false, []snapshot.PID{50}},
		{"the oldest comes first", []system.RunningProcess{job(60, alice, "1102"), job(50, alice, "1102")}, false, []snapshot.PID{50, 60}},
		{"a descendant set its title", []system.RunningProcess{job(50, alice, "1102"), with(job(51, alice, ""), wiped(50)), with(job(52, alice, ""), wiped(51))}, false, []snapshot.PID{50, 51, 52}},
		{"a title without an ancestor says nothing", []system.RunningProcess{with(job(51, alice, ""), wiped(1))}, false, nil},
		{"a descendant has left it", []system.RunningProcess{job(50, alice, "7"), with(job(51, alice, "7"), func(r *system.RunningProcess) { r.Parent = 50 })}, false, nil},
		{"another user claims it", []system.RunningProcess{job(50, bob, "1102"), job(51, 0, "1102")}, false, nil},
		{"another environment's job", []system.RunningProcess{job(50, alice, "11020")}, false, nil},
		{"in no environment", []system.RunningProcess{job(50, alice, "")}, false, nil},
		{"what may not be read may be in it", []system.RunningProcess{with(job(50, alice, ""), hidden("python"))}, false, []snapshot.PID{1102}},
		{"but a login is not", []system.RunningProcess{with(job(50, alice, ""), hidden("sshd"))}, false, nil},
		{"nor is another user's process", []system.RunningProcess{with(job(50, bob, ""), hidden("python"))}, false, nil},
		{"where /proc hides others nothing is known", nil, true, []snapshot.PID{1102}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			machine := &fakeSystem{processes: dead(1102), running: tt.running, hidden: tt.hidden}
			store := disk.New(sharedDir(t), disk.Config{System: machine})
			began(t, store, machine)
			files := read(t, store)
			require.Equal(t, 1, machine.walks)
			if tt.want == nil {
				require.Empty(t, files.Environments)
				require.Empty(t, files.AttachedTo("1102"), "the device is free")
				return
			}
			require.Equal(t, tt.want, files.Environment("1102").PIDs)
			require.Equal(t, indices{0}, files.AttachedTo("1102"), "the device is not free meanwhile")
		})
	}
}

// Any user can register any process in an environment; that doesn't keep it alive.
func TestProcessesOfOthersKeepNoEnvironmentAlive(t *testing.T) {
	of := livingOf
	root := func(eid snapshot.EnvID, unread error) []system.RunningProcess {
		return []system.RunningProcess{with(job(7, 0, eid), func(r *system.RunningProcess) { r.Unread = unread })}
	}
	for _, tt := range []struct {
		name    string
		pid     snapshot.PID
		process system.ProcessStatus
		running []system.RunningProcess
		lives   bool
	}{
		{"another user's", 7, of(bob), nil, false},
		{"PID 1", 1, of(0), nil, false},
		{"root's", 7, of(0), root("", nil), false},
		{"root's in another", 7, of(0), root("9", nil), false},
		{"root's with a title", 7, of(0), root("", proc.ErrOverwritten), false},
		{"a kernel thread", 7, of(0), nil, false},
		{"the init of another's container", 8, of(bob), nil, false},

		{"its user's", 7, of(alice), nil, true},
		{"root's, by sudo", 7, of(0), root("1102", nil), true},
		{"root's, as a user sees it", 7, of(0), root("", fs.ErrPermission), true},
		{"the init of its container", 9, of(0), nil, true},
		{"of any user", 9, of(bob), nil, true},
		{"an owner that can't be told", 7, system.ProcessStatus{Liveness: system.Alive}, nil, true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			machine := &fakeSystem{}
			inits := map[snapshot.PID]snapshot.EnvID{8: "9", 9: "1102"}
			store := disk.New(sharedDir(t), disk.Config{System: machine, Keeps: func(eid snapshot.EnvID, pid snapshot.PID, start snapshot.StartTime) bool {
				return inits[pid] == eid && start == tt.process.Start
			}})
			began(t, store, machine)
			require.NoError(t, store.Update(t.Context(), func(b *state.Files) error {
				b.Environment("1102").PIDs = []snapshot.PID{1102, tt.pid}
				return nil
			}))
			machine.processes = map[snapshot.PID]system.ProcessStatus{tt.pid: tt.process, 1102: of(alice)}
			machine.running = tt.running
			files := read(t, store)
			require.Equal(t, []snapshot.PID{1102, tt.pid}, files.Environment("1102").PIDs, "with one of its own it stays")
			machine.processes[1102] = system.ProcessStatus{Liveness: system.Gone}
			files = read(t, store)
			require.Equal(t, tt.lives, files.Environment("1102") != nil)
			require.False(t, tt.pid == 9 && files.Environment("1102").OwnerMismatch, "root has recorded it")
		})
	}
}

// began registers 1102 of alice with one device, while its process lives.
func began(t *testing.T, store *disk.Store, machine *fakeSystem) {
	t.Helper()
	before := machine.processes
	machine.processes = nil
	register(t, store, 2)
	require.NoError(t, store.Update(t.Context(), func(b *state.Files) error {
		if err := b.Activate(state.Activation{EID: "1102", UID: alice, PID: 1102, At: at("12:00:00")}); err != nil {
			return err
		}
		_, err := b.Attach(state.AttachRequest{EID: "1102", Count: 1, At: at("12:00:00")})
		return err
	}))
	machine.processes = before
}

func TestProcIsNotReadWhileARegisteredProcessLives(t *testing.T) {
	machine := &fakeSystem{}
	store := disk.New(sharedDir(t), disk.Config{System: machine})
	began(t, store, machine)
	_ = read(t, store)
	require.Zero(t, machine.walks)
}

func TestSuccessorsAreBounded(t *testing.T) {
	machine := &fakeSystem{processes: dead(1102)}
	for pid := range snapshot.PID(1000) {
		machine.running = append(machine.running, job(2000+pid, alice, "1102"))
	}
	store := disk.New(sharedDir(t), disk.Config{System: machine})
	began(t, store, machine)
	files := read(t, store)
	require.Len(t, files.Environment("1102").PIDs, 16)
	require.Equal(t, snapshot.PID(2000), files.Environment("1102").PIDs[0])
}

// Who deactivates leaves; the jobs that still run keep the environment.
func TestDeactivateKeepsTheEnvironmentOfRunningJobs(t *testing.T) {
	self := snapshot.PID(os.Getpid())
	subshell := with(job(1103, alice, "1102"), func(r *system.RunningProcess) { r.Parent = 1102 })
	caller := with(job(self, alice, "1102"), func(r *system.RunningProcess) { r.Parent = 1103 })
	shell := job(1102, alice, "1102") // started in the environment, as in tmux
	for _, tt := range []struct {
		name    string
		running []system.RunningProcess
		want    []snapshot.PID
	}{
		{"no jobs", nil, nil},
		{"the shell, its $(…) and genv are no jobs", []system.RunningProcess{shell, subshell, caller}, nil},
		{"a job still runs", []system.RunningProcess{shell, subshell, caller, job(50, alice, "1102")}, []snapshot.PID{50}},
		{"another user's does not count", []system.RunningProcess{job(50, bob, "1102")}, nil},
		{"what may not be read does not hold who leaves", []system.RunningProcess{unread(50, alice, fs.ErrPermission)}, nil},
		{"what was not read in time may be a job", []system.RunningProcess{shell, caller, unread(50, alice, proc.ErrNotRead)}, []snapshot.PID{1102}},
		{"the caller was not read in time", []system.RunningProcess{shell, with(caller, func(r *system.RunningProcess) { r.Unread = proc.ErrNotRead })}, nil},
		{"nor was another user's", []system.RunningProcess{unread(50, bob, proc.ErrNotRead)}, nil},
		{"a known job is enough", []system.RunningProcess{job(50, alice, "1102"), unread(51, alice, proc.ErrNotRead)}, []snapshot.PID{50}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			machine := &fakeSystem{running: tt.running}
			store := disk.New(sharedDir(t), disk.Config{System: machine})
			began(t, store, machine)
			var remaining []snapshot.PID
			require.NoError(t, store.Update(t.Context(), func(b *state.Files) error {
				require.Equal(t, snapshot.EnvID("1102"), b.EnvironmentOf(1102).EID)
				remaining = b.Deactivate(1102)
				return nil
			}))
			require.Equal(t, tt.want, remaining)
			files := read(t, store)
			if tt.want == nil {
				require.Empty(t, files.Environments)
				return
			}
			require.Equal(t, tt.want, files.Environment("1102").PIDs)
			require.Equal(t, indices{0}, files.AttachedTo("1102"))
		})
	}
}

// In a service the process that asks is another one, which may carry the id too.
func TestTheProcessThatAsksKeepsNoEnvironment(t *testing.T) {
	running := []system.RunningProcess{job(1102, alice, "1102"), with(job(1104, alice, "1102"), func(r *system.RunningProcess) { r.Parent = 1102 })}
	for asker, want := range map[snapshot.PID][]snapshot.PID{1104: nil, 0: {1104}, 7: {1104}} {
		machine := &fakeSystem{running: running}
		store := disk.New(sharedDir(t), disk.Config{System: machine})
		began(t, store, machine)
		var remaining []snapshot.PID
		require.NoError(t, store.Update(t.Context(), func(b *state.Files) error {
			b.Asker = asker
			remaining = b.Deactivate(1102)
			return nil
		}))
		require.Equal(t, want, remaining, asker)
	}
}

// 1102 ends while its real job still runs: setsid, as tmux and nohup do.
func TestARealJobKeepsItsEnvironment(t *testing.T) {
	store := disk.New(sharedDir(t), disk.Config{})
	register(t, store, 1)
	shell := sleeper(t, nil)
	eid := snapshot.EnvID(strconv.Itoa(int(shell.pid)))
	activate(t, store, state.Activation{EID: eid, UID: snapshot.UID(os.Getuid()), PID: shell.pid})
	work := sleeper(t, []string{"GENV_ENVIRONMENT_ID=" + string(eid)})
	shell.end()
	files := read(t, store)
	require.NotNil(t, files.Environment(eid))
	require.Equal(t, []snapshot.PID{work.pid}, files.Environment(eid).PIDs)
	work.end()
	files = read(t, store)
	require.Empty(t, files.Environments)
}

// After a reboot no process of an environment runs, even if some can't be read.
func TestAfterARebootNoProcessRuns(t *testing.T) {
	machine := &fakeSystem{boot: "boot-1", processes: map[snapshot.PID]system.ProcessStatus{1102: {Liveness: system.Alive, Start: 7}}}
	store := disk.New(sharedDir(t), disk.Config{System: machine, RootDir: rootDir(t)})
	machine.uptime = 5000
	began(t, store, machine)
	_ = read(t, store)
	machine.boot, machine.hidden = "boot-2", true
	machine.running = []system.RunningProcess{unread(50, alice, fs.ErrPermission)}
	require.Empty(t, read(t, store).Environments)
	require.Zero(t, machine.walks)
}
