package local_test

import (
	"bufio"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-3119e985/genv/snapshot"
	"github.com/seed-3119e985/genv/snapshot/proc/proctest"
	"github.com/seed-3119e985/genv/snapshot/state"
	"github.com/seed-3119e985/genv/snapshot/state/disk"
)

// member is what is expected of process 100, the child of shell 50, the child of login 40, the child of PID 1.
type member struct {
	eid, inherited       snapshot.EnvID
	unknown, overwritten bool
}

const (
	titled   = "n.py --lr=1\x00\x00\x00\x00"
	claims   = "A=1\x00GENV_ENVIRONMENT_ID=2020\x00"
	claimsNo = "A=1\x00"
)

func registered(eid snapshot.EnvID, uid snapshot.UID, pids ...snapshot.PID) snapshot.Environment {
	return snapshot.Environment{EID: eid, UID: uid, PIDs: pids}
}

func TestMembership(t *testing.T) {
	for name, row := range map[string]struct {
		environ string
		uid     int // of process 100
		shell   int // the uid of 50
		login   int // the uid of 40
		files   []snapshot.Environment
		want    member
	}{
		// An intact claim counts, whatever the ancestors are.
		"a claim":                          {claims, 1001, 1001, 1001, nil, member{eid: "2020"}},
		"a claim, and the shell's":         {claims, 1001, 1001, 1001, []snapshot.Environment{registered("2020", 1001, 50)}, member{eid: "2020", inherited: "2020"}},
		"a claim, and another shell's":     {claims, 1001, 1001, 1001, []snapshot.Environment{registered("7", 1001, 50)}, member{eid: "2020", inherited: "7"}},
		"a claim to another's environment": {claims, 1002, 1002, 1001, []snapshot.Environment{registered("2020", 1001, 40)}, member{eid: "2020", inherited: "2020"}},
		// Without one, and if a title hides it, the ancestors count.
		"a title":                      {titled, 1001, 1001, 1001, []snapshot.Environment{registered("7", 1001, 50)}, member{eid: "7", inherited: "7"}},
		"no claim":                     {claimsNo, 1001, 1001, 1001, []snapshot.Environment{registered("7", 1001, 50)}, member{eid: "7", inherited: "7"}},
		"an empty claim":               {"GENV_ENVIRONMENT_ID=\x00", 1001, 1001, 1001, []snapshot.Environment{registered("7", 1001, 50)}, member{eid: "7", inherited: "7"}},
		"a title, a grandchild":        {titled, 1001, 1001, 1001, []snapshot.Environment{registered("7", 1001, 40)}, member{eid: "7", inherited: "7"}},
		"the nearest counts":           {titled, 1001, 1001, 1001, []snapshot.Environment{registered("8", 1001, 40), registered("7", 1001, 50)}, member{eid: "7", inherited: "7"}},
		"the process itself":           {titled, 1001, 1001, 1001, []snapshot.Environment{registered("7", 1001, 50), registered("9", 1001, 100)}, member{eid: "9", inherited: "9"}},
		"root's process":               {titled, 0, 1001, 1001, []snapshot.Environment{registered("7", 1001, 50)}, member{eid: "7", inherited: "7"}},
		"of several, its own user's":   {titled, 1001, 1001, 1001, []snapshot.Environment{registered("8", 1002, 50), registered("7", 1001, 50)}, member{eid: "7", inherited: "7"}},
		"a shell of another user":      {titled, 1001, 1002, 1001, []snapshot.Environment{registered("8", 1002, 50), registered("7", 1001, 40)}, member{eid: "7", inherited: "8"}},
		"sudo -u, and no claim":        {claimsNo, 1002, 1001, 1001, []snapshot.Environment{registered("7", 1001, 50)}, member{inherited: "7"}},
		"sudo -u, and a title":         {titled, 1002, 1001, 1001, []snapshot.Environment{registered("7", 1001, 50)}, member{inherited: "7", unknown: true, overwritten: true}},
		"a registered uid that's not":  {titled, 1001, 1001, 1001, []snapshot.Environment{registered("7", 1002, 50)}, member{unknown: true, overwritten: true}},
		"forged: root's, of PID 1":     {claimsNo, 1001, 1001, 1001, []snapshot.Environment{registered("7", 0, 1)}, member{}},
		"forged: root's, for root's":   {claimsNo, 0, 1001, 1001, []snapshot.Environment{registered("7", 0, 1)}, member{}},
		"forged: root's, and a title":  {titled, 0, 0, 0, []snapshot.Environment{registered("7", 0, 1, 40, 50)}, member{unknown: true, overwritten: true}},
		"forged: another's, of PID 50": {claimsNo, 1002, 1002, 1002, []snapshot.Environment{registered("7", 1001, 50)}, member{}},
		// Otherwise nothing does.
		"no claim, no environment": {claimsNo, 1001, 1001, 1001, nil, member{}},
		"a title, no environment":  {titled, 1001, 1001, 1001, nil, member{unknown: true, overwritten: true}},
		"a stranger's environment": {claimsNo, 1001, 1001, 1001, []snapshot.Environment{registered("7", 1001, 60)}, member{}},
	} {
		t.Run(name, func(t *testing.T) {
			m := finder(t, row.environ, row.uid, row.shell, row.login)
			m.files.Environments = row.files
			processes, _, err := m.Processes(t.Context())
			require.NoError(t, err)
			for _, p := range []snapshot.Process{m.snapshot().Processes[0], m.snapshot().Processes[0], processes[0]} {
				require.Equal(t, row.want, memberOf(&p))
			}
		})
	}
}

func memberOf(p *snapshot.Process) member {
	return member{p.EID, p.Inherited, p.EnvUnknown, p.EnvOverwritten}
}

// finder is a machine with process 100, which uses GPU 0, and its ancestors.
func finder(t *testing.T, environ string, uid, shell, login int) *machine {
	m := machineWith(t, "")
	m.process(100, uid, 5000, environ)
	m.process(50, shell, 500, claimsNo)
	m.process(40, login, 400, claimsNo)
	m.process(60, 1001, 600, claimsNo)
	m.write("100/stat", statOf(100, 50, "python3", "S", 5000, 6000))
	m.write("50/stat", statOf(50, 40, "bash", "S", 500, 1500))
	return m
}

// The ancestors are compared with the state files that are read after them: one
// that has ended in between, or another process with its PID, is none.
func TestAnAncestorThatEndsBeforeTheStateFilesAreRead(t *testing.T) {
	for name, change := range map[string]func(*machine){
		"ended":           func(m *machine) { m.remove(50) },
		"another process": func(m *machine) { m.write("50/stat", statOf(50, 40, "bash", "S", 501, 1500)) },
	} {
		t.Run(name, func(t *testing.T) {
			m := finder(t, titled, 1001, 1001, 1001)
			m.files.Environments = []snapshot.Environment{registered("7", 1001, 50)}
			m.files.then = func() { change(m) }
			p := m.snapshot().Processes[0]
			require.Equal(t, member{unknown: true, overwritten: true}, memberOf(&p))
		})
	}
}

// A process that can't be looked at is not one without ancestors.
func TestAncestorsThatAreNotKnown(t *testing.T) {
	for name, change := range map[string]func(*machine){
		"a shell that is not shown": func(m *machine) { m.write("50/stat", "rubbish") },
		"a login that is not shown": func(m *machine) { m.write("40/stat", "rubbish") },
		"a shell without an owner":  func(m *machine) { m.write("50/status", "rubbish") },
	} {
		t.Run(name, func(t *testing.T) {
			m := finder(t, claimsNo, 1001, 1001, 1001)
			m.files.Environments = []snapshot.Environment{registered("7", 1001, 50)}
			if name == "a login that is not shown" {
				m.files.Environments[0].PIDs[0] = 60
			}
			change(m)
			s := m.snapshot()
			require.True(t, s.Processes[0].EnvUnknown)
			require.False(t, s.Processes[0].EnvOverwritten)
			require.Len(t, s.Warnings, 1, s.Warnings)
		})
	}
}

// Without the state files only an environ shows the environment.
func TestProcessesWithoutStateFiles(t *testing.T) {
	for environ, want := range map[string]member{
		claims:   {eid: "2020"},
		claimsNo: {unknown: true},
		titled:   {unknown: true, overwritten: true},
	} {
		m := finder(t, environ, 1001, 1001, 1001)
		m.files.err = disk.ErrCorrupt
		processes, warnings, err := m.Processes(t.Context())
		require.NoError(t, err)
		p := processes[0]
		require.Equal(t, want, memberOf(&p))
		require.NotEmpty(t, warnings)
	}
}

// What hardly changes is read again after a minute, or when the process is
// another one, runs another program, or has another parent or uid.
func TestDetailsAreReadAgain(t *testing.T) {
	for name, row := range map[string]struct {
		change func(*machine)
		again  bool
	}{
		"nothing changed": {func(*machine) {}, false},
		"another process": {writes("stat", statOf(100, 50, "python3", "S", 5001, 6000)), true},
		"another program": {writes("stat", statOf(100, 50, "python3", "S", 5000, 6001)), true},
		"another parent":  {writes("stat", statOf(100, 1, "python3", "S", 5000, 6000)), true},
		"another uid":     {writes("status", "Uid:\t1002\t0\t0\t0\n"), true},
		"a minute passed": {func(m *machine) { now := time.Now().Add(time.Minute); m.Now = func() time.Time { return now } }, true},
	} {
		t.Run(name, func(t *testing.T) {
			m := finder(t, claims, 1001, 1001, 1001)
			m.write("100/cmdline", "before")
			require.Equal(t, "before", m.snapshot().Processes[0].Command)
			m.write("100/cmdline", "after")
			row.change(m)
			want := "before"
			if row.again {
				want = "after"
			}
			require.Equal(t, want, m.snapshot().Processes[0].Command)
		})
	}
}

// A real job that sets a title, started from a shell that is active: in its
// environment. Registered by another uid, or not at all, it is unknown.
func TestARealTitle(t *testing.T) {
	job := exec.Command("/bin/sh", "-c", `"$0"; :`, "/proc/self/exe")
	own, program, attr := proctest.OrdinaryUser(t) // nothing is inherited from root's processes
	job.Args[3], job.SysProcAttr = program, attr
	job.Env = []string{titleVariable + "=train.py --lr=0.1", "GENV_ENVIRONMENT_ID=1667"}
	in, out := proctest.StartPiped(t, job)
	t.Cleanup(func() { _ = in.Close(); _ = job.Wait() })
	line := proctest.Try(bufio.NewReader(out).ReadString('\n')).OK(t)
	require.Equal(t, "done\n", line)
	shell := snapshot.PID(job.Process.Pid)
	children, err := os.ReadFile(fmt.Sprintf("/proc/%d/task/%d/children", shell, shell))
	if err != nil {
		t.Skip("this kernel does not list children")
	}
	n := proctest.Try(strconv.Atoi(strings.TrimSpace(string(children)))).OK(t)
	pid := snapshot.PID(n)

	machine, store := realMachine(t, pid)
	for _, row := range []struct {
		uid  snapshot.UID
		want member
	}{
		{own + 1, member{eid: "1667"}}, // it names it, and isn't in it
		{own, member{eid: "1667", inherited: "1667"}},
	} {
		require.NoError(t, store.Update(t.Context(), func(b *state.Files) error {
			b.Environments = []snapshot.Environment{registered("1667", row.uid, shell)}
			b.Environments[0].Creation = snapshot.DateOf(time.Now())
			return nil
		}))
		s := proctest.Try(machine.Snapshot(t.Context())).OK(t)
		require.Len(t, s.Processes, 1)
		p := s.Processes[0]
		require.Equal(t, row.want, memberOf(&p))
		require.Contains(t, p.Command, program[:min(len(program), 200)])
	}
}

func TestBrief(t *testing.T) {
	m := finder(t, titled, 1001, 1001, 1001)
	m.write("100/cmdline", "python3")
	m.write("100/cgroup", "0::/lxc/web\n")
	m.files.Environments = []snapshot.Environment{registered("7", 1001, 50)}
	m.Brief = true
	s := m.snapshot()
	require.Empty(t, s.Processes[0].Command+s.Processes[0].Container+s.StateFolder)
	require.Equal(t, snapshot.EnvID("7"), s.Processes[0].EID)
}

// genv 1.4.3 drops an environment with its shell, while jobs go on in it: it isn't known that they are outside.
func TestProcessesOfDroppedEnvironments(t *testing.T) {
	for _, tt := range []struct {
		name    string
		eid     string
		uid     int
		unknown bool
	}{
		{"it was registered in this boot", "9", 1001, true},
		{"for another user", "9", 1002, false},
		{"root never saw it", "8", 1001, false},
		{"it is registered", "2020", 1001, false},
		{"it claims none", "", 1001, false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			m := newMachine(t)
			m.files.Environments = []snapshot.Environment{{EID: "2020", UID: 1001}}
			seen := state.RootNote{Earlier: []state.EnvironmentOwner{{EID: "9", UID: 1001}}}
			seen.Apply(&m.files.Files)
			environ := "HOME=/\x00"
			if tt.eid != "" {
				environ += "GENV_ENVIRONMENT_ID=" + tt.eid + "\x00"
			}
			m.process(77, tt.uid, 5000, environ)
			m.smi.apps = "GPU-0, 77, 100\n"
			s := m.snapshot()
			require.Len(t, s.Processes, 1)
			require.Equal(t, tt.unknown, s.Processes[0].EnvUnknown)
			if tt.unknown {
				require.Empty(t, s.Processes[0].EID)
				require.Contains(t, s.Warnings[len(s.Warnings)-1], "1 processes are in environments that are no longer in the state files")
				return
			}
			require.Equal(t, snapshot.EnvID(tt.eid), s.Processes[0].EID)
			require.Empty(t, s.Warnings)
		})
	}
}

// The PIDs of another PID namespace are other processes here.
func TestRegisteredPIDsOfAnotherNamespaceAreIgnored(t *testing.T) {
	for unknown, want := range map[bool]member{false: {eid: "7", inherited: "7"}, true: {unknown: true}} {
		m := finder(t, claimsNo, 1001, 1001, 1001)
		m.files.Environments = []snapshot.Environment{registered("7", 1001, 50)}
		m.files.LivenessUnknown = unknown
		p := m.snapshot().Processes[0]
		require.Equal(t, want, memberOf(&p))
		processes, _, err := m.Processes(t.Context())
		require.NoError(t, err)
		require.Equal(t, p.EID, processes[0].EID)
	}
}
