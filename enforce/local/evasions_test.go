package local_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/seed-3119e985/genv/enforce/local"
	"github.com/seed-3119e985/genv/enforce/order"
	"github.com/seed-3119e985/genv/snapshot"
	"github.com/seed-3119e985/genv/snapshot/container"
	"github.com/seed-3119e985/genv/snapshot/proc"
	"github.com/seed-3119e985/genv/snapshot/proc/proctest"
)

// carryOut carries out one termination, because of findings with these ids.
func (s *scene) carryOut(judged snapshot.Process, because ...string) order.Outcome {
	item := order.Termination{Process: judged, Reasons: order.Reasons{Because: because}}
	return s.x.Execute(context.Background(), order.Order{Terminate: []order.Termination{item}, Options: s.Options})[0]
}

// TestOutsideProcessIsTerminatedWhateverItClaims: a process can write another id into
// its own environ whenever it likes.
func TestOutsideProcessIsTerminatedWhateverItClaims(t *testing.T) {
	me := snapshot.UID(os.Getuid())
	mine, other := environment("7", me, "me"), environment("8", me+1, "other")
	for name, r := range map[string]struct {
		judged  snapshot.EnvID
		options []option
		now     snapshot.Process // what the machine adds
		status  order.OutcomeStatus
	}{
		"other garbage":                    {"111", []option{in("222")}, snapshot.Process{}, order.StatusTerminated},
		"garbage, and none now":            {"111", nil, snapshot.Process{}, order.StatusTerminated},
		"none, and garbage now":            {"", []option{in("222")}, snapshot.Process{}, order.StatusTerminated},
		"in another user's environment":    {"111", []option{in("8")}, snapshot.Process{}, otherUser(order.StatusTerminated, order.StatusChanged)},
		"in another's, as sudo may be":     {"111", []option{in("8")}, snapshot.Process{Inherited: "8"}, order.StatusChanged},
		"in its own user's environment":    {"111", []option{in("7")}, snapshot.Process{}, order.StatusChanged},
		"descends from its own user's":     {"111", nil, snapshot.Process{EID: "7", Inherited: "7"}, order.StatusChanged},
		"in none, and from another user's": {"111", nil, snapshot.Process{Inherited: "8"}, order.StatusChanged},
		"unknown":                          {"111", nil, snapshot.Process{EnvUnknown: true}, order.StatusChanged},
	} {
		t.Run(name, func(t *testing.T) {
			c := ready(t, "gentle", r.options...)
			r.now.PID, r.now.Usage = c.pid(), usage(0)
			s := newScene(local.ExecutorOptions{Grace: oneGrace}, r.now)
			s.machine.envs = []snapshot.Environment{mine, other}
			got := s.carryOut(c.judged(r.judged, 0), order.RuleOutside+"/a/1/1")
			require.Equal(t, r.status, got.Status, got.Reason)
			if r.status == order.StatusTerminated {
				require.Equal(t, []string{fmt.Sprintf("Terminating process %d from environment N/A that is running on GPU(s) 0", c.pid())}, s.lines)
			}
		})
	}
}

// TestCountedProcessIsTerminatedWhateverItsEnvironment: what it uses counts for its account.
func TestCountedProcessIsTerminatedWhateverItsEnvironment(t *testing.T) {
	me := snapshot.UID(os.Getuid())
	for name, now := range map[string]snapshot.Process{
		"none": {}, "unknown": {EnvUnknown: true}, "one of its own since": {EID: "7"}, "too large to read": {EnvUnknown: true, Unreadable: &snapshot.Unreadable{Why: "large", ByUser: true}},
	} {
		for _, judged := range []snapshot.Process{{}, {EnvUnknown: true}, {EID: "8"}} {
			for change, want := range map[string]order.OutcomeStatus{"": order.StatusTerminated, "the account": order.StatusChanged, "the GPU": order.StatusChanged, "not counted": order.StatusRefused} {
				c := ready(t, "gentle")
				now.PID, now.Usage = c.pid(), usage(0)
				s := newScene(local.ExecutorOptions{Grace: oneGrace}, now)
				s.machine.envs = []snapshot.Environment{environment("7", me, "me"), environment("8", me+1, "other")}
				p := c.judged(judged.EID, 0)
				p.EnvUnknown, p.UID = judged.EnvUnknown, &me
				switch change {
				case "the account":
					p.UID = new(me + 1)
				case "the GPU":
					p.Usage = usage(3)
				case "not counted":
					if !judged.EnvUnknown {
						continue
					}
				}
				items := []order.Termination{{Process: p, Counted: change != "not counted", Reasons: order.Reasons{Because: []string{"idle/a/1/1"}}}}
				got := s.x.Execute(t.Context(), order.Order{Terminate: items, Options: s.Options})[0]
				require.Equal(t, want, got.Status, "%s %+v %s: %s", name, judged, change, got.Reason)
			}
		}
	}
}

// otherUser is another status for root, who may be in every user's environment.
func otherUser(status, roots order.OutcomeStatus) order.OutcomeStatus {
	if os.Getuid() == 0 {
		return roots
	}
	return status
}

// TestEvasiveProcessIsSignalledTheThirdTime: it was in another environment, or
// had freed a device, each time that it was to be signalled.
func TestEvasiveProcessIsSignalledTheThirdTime(t *testing.T) {
	byUser, network := &snapshot.Unreadable{ByUser: true}, &snapshot.Unreadable{}
	for name, r := range map[string]struct {
		options    []option
		judged     snapshot.EnvID
		devices    []snapshot.DeviceIndex
		now        snapshot.Process
		third      order.OutcomeStatus
		unreadable *snapshot.Unreadable // as it was judged
	}{
		"judged as a member":           {[]option{in("222")}, "7", devices(0), snapshot.Process{Usage: usage(0)}, order.StatusTerminated, nil},
		"judged as outside":            {[]option{in("7")}, "111", devices(0), snapshot.Process{Usage: usage(0)}, order.StatusTerminated, nil},
		"frees one device":             {[]option{in("7")}, "7", devices(0, 1), snapshot.Process{Usage: usage(1)}, order.StatusTerminated, nil},
		"frees all devices":            {[]option{in("7")}, "7", devices(0, 1), snapshot.Process{Usage: usage(2)}, order.StatusChanged, nil},
		"does both":                    {[]option{in("222")}, "7", devices(0, 1), snapshot.Process{Usage: usage(2)}, order.StatusChanged, nil},
		"inherits another, by files":   {nil, "", devices(0), snapshot.Process{EID: "7", Inherited: "7", Usage: usage(0)}, order.StatusChanged, nil},
		"can't be known":               {nil, "7", devices(0), snapshot.Process{EnvUnknown: true, Usage: usage(0)}, order.StatusChanged, nil},
		"was unreadable":               {nil, "", devices(0), snapshot.Process{Usage: usage(0)}, order.StatusTerminated, byUser},
		"was so, and has a title":      {nil, "", devices(0), snapshot.Process{EnvUnknown: true, EnvOverwritten: true, Usage: usage(0)}, order.StatusTerminated, byUser},
		"was so, and a network hangs":  {nil, "", devices(0), snapshot.Process{EnvUnknown: true, Unreadable: network, Usage: usage(0)}, order.StatusChanged, byUser},
		"was so, and isn't read yet":   {nil, "", devices(0), snapshot.Process{EnvUnknown: true, Usage: usage(0)}, order.StatusChanged, byUser},
		"was so, and inherits one":     {nil, "", devices(0), snapshot.Process{EID: "7", Inherited: "7", Unreadable: byUser, Usage: usage(0)}, order.StatusChanged, byUser},
		"is unreadable":                {nil, "", devices(0), snapshot.Process{EnvUnknown: true, Unreadable: byUser, Usage: usage(0)}, order.StatusTerminated, nil},
		"is so, and was a member":      {nil, "7", devices(0), snapshot.Process{EnvUnknown: true, Unreadable: byUser, Usage: usage(0)}, order.StatusTerminated, nil},
		"is so, since a network hangs": {nil, "", devices(0), snapshot.Process{EnvUnknown: true, Unreadable: network, Usage: usage(0)}, order.StatusChanged, nil},
	} {
		t.Run(name, func(t *testing.T) {
			c := ready(t, "gentle", r.options...)
			r.now.PID = c.pid()
			s := newScene(local.ExecutorOptions{Grace: oneGrace}, r.now)
			s.machine.envs = []snapshot.Environment{environment("7", snapshot.UID(os.Getuid()), "me")}
			judged := c.judged(r.judged, r.devices...)
			judged.Unreadable, judged.EnvUnknown = r.unreadable, r.unreadable != nil
			for range 2 {
				require.Equal(t, order.StatusChanged, s.carryOut(judged, "a finding").Status)
				c.answers()
			}
			got := s.carryOut(judged, "a finding")
			require.Equal(t, r.third, got.Status, got.Reason)
			if r.third == order.StatusTerminated {
				c.endedBy(unix.SIGTERM)
				return
			}
			c.answers()
		})
	}
}

func devices(list ...snapshot.DeviceIndex) []snapshot.DeviceIndex { return list }

// TestEvasionsAreCountedPerProcess: what another one did before does not count.
func TestEvasionsAreCountedPerProcess(t *testing.T) {
	s := newScene(local.ExecutorOptions{Grace: oneGrace})
	for range 4 {
		c := ready(t, "gentle", in("222"))
		s.machine.apps = []snapshot.Process{{PID: c.pid(), Usage: usage(0)}}
		require.Equal(t, order.StatusChanged, s.carryOut(c.judged("7", 0), "a finding").Status)
		c.answers()
	}
}

// TestEvasionAfterSIGTERM: a process learns from SIGTERM when to become another one.
func TestEvasionAfterSIGTERM(t *testing.T) {
	c := ready(t, "stubborn", in("7"))
	s := newScene(local.ExecutorOptions{Grace: aMoment}).killing()
	s.machine.then = func() {
		s.machine.apps = []snapshot.Process{{PID: c.pid(), Usage: usage(0, 1)}}
		if s.machine.asked%2 == 0 {
			s.machine.apps[0].Usage = usage(1)
		}
	}
	for range 2 {
		require.Equal(t, order.StatusChanged, s.carryOut(c.judged("7", 0, 1), "a finding").Status, "a controller tries again")
		c.answers()
	}
	require.Equal(t, order.StatusKilled, s.carryOut(c.judged("7", 0, 1), "a finding").Status)
	c.endedBy(unix.SIGKILL)
}

// TestEffectiveEnvironmentIsCompared: judged is the environment that was
// judged, now what the machine finds right before the signal.
func TestEffectiveEnvironmentIsCompared(t *testing.T) {
	type membership struct {
		eid, inherited       snapshot.EnvID
		unknown, overwritten bool
		unreadable           *snapshot.Unreadable
	}
	stalled := membership{unknown: true, unreadable: &snapshot.Unreadable{Why: "its memory does not answer", ByUser: true}}
	perhaps := membership{unknown: true, unreadable: &snapshot.Unreadable{Why: "its memory does not answer"}}
	hidden := membership{unknown: true, overwritten: true}
	for name, row := range map[string]struct {
		role        string
		options     []option
		judged, now membership
		status      order.OutcomeStatus
		reason      string
	}{
		"inherited behind a title":         {"titled", nil, membership{eid: "7"}, membership{eid: "7", inherited: "7"}, order.StatusTerminated, ""},
		"inherited without a claim":        {"gentle", nil, membership{eid: "7"}, membership{eid: "7", inherited: "7"}, order.StatusTerminated, ""},
		"hidden, and judged so":            {"titled", []option{in("7")}, hidden, hidden, order.StatusTerminated, ""},
		"none, though of another's shell":  {"gentle", nil, membership{}, membership{inherited: "7"}, order.StatusTerminated, ""},
		"a claim, and another inherited":   {"gentle", []option{in("7")}, membership{eid: "7"}, membership{eid: "7", inherited: "8"}, order.StatusTerminated, ""},
		"unreadable by its user":           {"gentle", nil, stalled, stalled, order.StatusTerminated, ""},
		"unreadable by anything":           {"gentle", nil, perhaps, perhaps, order.StatusRefused, "its environment was not known"},
		"unreadable by anything by now":    {"gentle", nil, stalled, perhaps, order.StatusChanged, "it can be read now"},
		"unreadable, and read by now":      {"gentle", nil, stalled, membership{}, order.StatusChanged, "it can be read now"},
		"unreadable, and inherited by now": {"gentle", nil, stalled, membership{eid: "7", inherited: "7"}, order.StatusChanged, "it can be read now"},
		"hidden, but inherited by now":     {"titled", nil, hidden, membership{eid: "7", inherited: "7"}, order.StatusChanged, "it is in environment 7, and an unknown one was judged"},
		"hidden, but a claim":              {"gentle", []option{in("7")}, hidden, hidden, order.StatusChanged, "it is in environment 7, and an unknown one was judged"},
		"hidden, but none":                 {"gentle", nil, hidden, membership{}, order.StatusTerminated, ""},
		"hidden, and only unknown by now":  {"titled", nil, hidden, membership{unknown: true}, order.StatusChanged, "its environment can't be read"},
		"unknown":                          {"titled", nil, membership{unknown: true}, hidden, order.StatusRefused, "its environment was not known"},
		"unknown, with an environment":     {"titled", nil, membership{eid: "7", unknown: true, overwritten: true}, hidden, order.StatusRefused, "its environment was not known"},
		"none, and inherited by now":       {"gentle", nil, membership{}, membership{eid: "7", inherited: "7"}, order.StatusChanged, "it is in environment 7, and environment N/A was judged"},
		"none, and hidden by now":          {"titled", nil, membership{}, hidden, order.StatusChanged, "can't be read any more"},
		"none, hidden since the question":  {"titled", nil, membership{}, membership{}, order.StatusChanged, "can't be read any more"},
		"none, and no state files now":     {"gentle", nil, membership{}, membership{unknown: true}, order.StatusChanged, "is not known now"},
		"inherited, and another by now":    {"titled", nil, membership{eid: "7"}, membership{eid: "8", inherited: "8"}, order.StatusChanged, "it is in environment 8"},
		"inherited, and none by now":       {"gentle", nil, membership{eid: "7"}, membership{}, order.StatusChanged, "it is in environment N/A"},
		"inherited, and hidden by now":     {"titled", nil, membership{eid: "7"}, hidden, order.StatusChanged, "can't be read any more"},
		"a claim, hidden since":            {"titled", []option{in("7")}, membership{eid: "7"}, hidden, order.StatusChanged, "can't be read any more"},
		"a claim, hidden since the answer": {"titled", []option{in("7")}, membership{eid: "7"}, membership{eid: "7"}, order.StatusTerminated, ""},
	} {
		t.Run(name, func(t *testing.T) {
			c := ready(t, row.role, row.options...)
			judged, now := c.judged(row.judged.eid, 0), c.judged(row.now.eid, 0)
			judged.Unreadable, now.Unreadable = row.judged.unreadable, row.now.unreadable
			judged.EnvUnknown, judged.EnvOverwritten = row.judged.unknown, row.judged.overwritten
			now.EnvUnknown, now.EnvOverwritten, now.Inherited = row.now.unknown, row.now.overwritten, row.now.inherited
			s := newScene(local.ExecutorOptions{Grace: oneGrace}, now)
			for _, eid := range []snapshot.EnvID{"7", "8"} {
				s.machine.envs = append(s.machine.envs, environment(eid, snapshot.UID(os.Getuid()), "me"))
			}
			got := s.terminate(t, judged)[0]
			require.Equal(t, row.status, got.Status, got.Reason)
			require.Contains(t, got.Reason, row.reason)
			if row.status == order.StatusTerminated {
				c.endedBy(unix.SIGTERM)
				return
			}
			require.Empty(t, s.lines)
			c.answers()
		})
	}
}

// TestOwnerInUserNamespace: as in a snapshot, a uid of /etc/subuid counts for the user who made the namespace.
func TestOwnerInUserNamespace(t *testing.T) {
	proctest.NeedRoot(t)
	inNamespace := func() *child {
		cmd := exec.Command("/bin/sh", "-c", `exec unshare -U sh -c 'echo; read x; exec setpriv --reuid 7 --regid 7 --clear-groups sh -c "echo; cat"'`)
		cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: person, Gid: person}, Pdeathsig: syscall.SIGKILL}
		cmd.Env, cmd.Dir = []string{"PATH=" + os.Getenv("PATH")}, "/"
		c := started(t, cmd)
		if _, err := c.out.ReadString('\n'); err != nil {
			t.Skip("users may make no user namespaces here")
		}
		// Root maps it, as newuidmap does, so that its real uid becomes a subuid.
		for _, file := range []string{"uid_map", "gid_map"} {
			require.NoError(t, os.WriteFile(fmt.Sprintf("/proc/%d/%s", c.pid(), file), []byte("0 54321 1\n1 2000000 65536\n"), 0o644))
		}
		proctest.Try(fmt.Fprintln(c.in, "go")).OK(t)
		proctest.Try(c.out.ReadString('\n')).OK(t)
		require.Equal(t, snapshot.UID(2000006), proctest.Try(proc.FS{}.UID(c.pid())).OK(t))
		return c
	}
	for owner, want := range map[snapshot.UID]order.OutcomeStatus{person: order.StatusTerminated, person + 1: order.StatusChanged, 0: order.StatusChanged} {
		c := inNamespace()
		judged := c.judged("", 0)
		judged.UID = &owner
		s := newScene(local.ExecutorOptions{Grace: oneGrace}, judged)
		got := s.terminate(t, judged)[0]
		require.Equal(t, want, got.Status, got.Reason)
	}
}

// engines stand for a container engine that stops containers with SIGKILL.
type engines struct {
	initErr, stopErr error
	pid              snapshot.PID
	stopped          int
	grace            time.Duration
}

func (e *engines) Init(_ context.Context, pid snapshot.PID) (container.Running, error) {
	e.pid = pid
	return container.Running{Text: "container web (cuda:12)"}, e.initErr
}

func (e *engines) Stop(_ context.Context, _ container.Running, grace time.Duration) error {
	e.stopped, e.grace = e.stopped+1, grace
	if e.stopErr != nil {
		return e.stopErr
	}
	return unix.Kill(int(e.pid), unix.SIGKILL)
}

// TestTheEngineStopsAContainer: for the first process of a container, and for nothing else.
func TestTheEngineStopsAContainer(t *testing.T) {
	const stopped = "its container was stopped: container web (cuda:12)"
	for name, row := range map[string]struct {
		engines engines
		init    bool
		changed bool
		status  order.OutcomeStatus
		by      unix.Signal
		stops   int
		reason  string
	}{
		"the first process":         {init: true, status: order.StatusTerminated, by: unix.SIGKILL, stops: 1, reason: stopped},
		"another process":           {status: order.StatusTerminated, by: unix.SIGTERM},
		"of another container now":  {engines: engines{initErr: container.ErrNotInit}, init: true, status: order.StatusTerminated, by: unix.SIGTERM},
		"an engine that is unknown": {engines: engines{initErr: errors.New("no answer")}, init: true, status: order.StatusTerminated, by: unix.SIGTERM, reason: "it is the first process of a container, and its engine could not be asked to stop it: no answer"},
		"an engine that refuses":    {engines: engines{stopErr: errors.New("refused")}, init: true, status: order.StatusTerminated, by: unix.SIGTERM, stops: 1, reason: "it is the first process of container web (cuda:12), and got the signal itself: refused"},
		"not what was judged":       {init: true, changed: true, status: order.StatusChanged},
	} {
		t.Run(name, func(t *testing.T) {
			c := ready(t, "gentle", in("7"))
			now := snapshot.Process{PID: c.pid(), Usage: usage(0, 1), Container: "web", ContainerInfo: &snapshot.ContainerInfo{Init: row.init}}
			judged := c.judged("7", 0, 1)
			if row.changed {
				judged.Start++
			}
			s := newScene(local.ExecutorOptions{Grace: oneGrace, Containers: &row.engines}, now)
			got := s.terminate(t, judged)[0]
			require.Equal(t, row.status, got.Status, got.Reason)
			require.Equal(t, row.stops, row.engines.stopped)
			if row.changed {
				require.NoError(t, unix.Kill(int(c.pid()), 0), "it goes on")
				return
			}
			require.Equal(t, row.reason, got.Reason)
			require.Len(t, s.lines, 1)
			c.endedBy(row.by)
			if row.stops > 0 {
				require.Equal(t, oneGrace, row.engines.grace)
			}
		})
	}
}

// TestAThreadThatWaitsForFUSE: its process survives SIGKILL for as long as its server runs, which is no fault of a GPU.
func TestAThreadThatWaitsForFUSE(t *testing.T) {
	t.Parallel()
	pid, uid := proctest.Stall(t, false)
	stat := proctest.Try(proc.FS{}.Stat(pid)).OK(t)
	p := snapshot.Process{PID: pid, UID: &uid, Start: stat.Start, Usage: usage(0), EnvUnknown: true, Unreadable: &snapshot.Unreadable{Why: "stalled", ByUser: true}}
	s := newScene(local.ExecutorOptions{Grace: time.Second}, p).killing()
	got := s.terminate(t, p)[0]
	require.Equal(t, order.StatusSurvived, got.Status, got.Reason)
	require.Equal(t, "it did not end within 10s of SIGKILL: a thread waits for a FUSE file system, and ends when its server does", got.Reason)
}
