package local_test

import (
	"context"
	"fmt"
	"os"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/seed-3119e985/genv/enforce/local"
	"github.com/seed-3119e985/genv/enforce/order"
	"github.com/seed-3119e985/genv/snapshot"
)

// carryOut carries out one termination, because of findings with these ids.
func (s *scene) carryOut(judged snapshot.Process, because ...string) order.Outcome {
	item := order.Termination{Process: judged, Reasons: order.Reasons{Because: because}}
	return s.x.Execute(context.Background(), order.Order{Terminate: []order.Termination{item}})[0]
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
					other := me + 1
					p.UID = &other
				case "the GPU":
					p.Usage = usage(3)
				case "not counted":
					if !judged.EnvUnknown {
						continue
					}
				}
				items := []order.Termination{{Process: p, Counted: change != "not counted", Reasons: order.Reasons{Because: []string{"idle/a/1/1"}}}}
				got := s.x.Execute(t.Context(), order.Order{Terminate: items})[0]
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
	s := newScene(local.ExecutorOptions{Grace: aMoment, Kill: true})
	s.machine.then = func() {
		s.machine.apps = []snapshot.Process{{PID: c.pid(), Usage: usage(0, 1)}}
		if s.machine.asked%2 == 0 {
			s.machine.apps[0].Usage = usage(1)
		}
	}
	for range 2 {
		got := s.carryOut(c.judged("7", 0, 1), "a finding")
		require.Equal(t, order.StatusChanged, got.Status, "a controller tries again")
		c.answers()
	}
	require.Equal(t, order.StatusKilled, s.carryOut(c.judged("7", 0, 1), "a finding").Status)
	c.endedBy(unix.SIGKILL)
}
