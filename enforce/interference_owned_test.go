package enforce_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/seed-3119e985/genv/snapshot"
	"github.com/seed-3119e985/genv/snapshot/proc"
	"github.com/seed-3119e985/genv/snapshot/state"
	"github.com/seed-3119e985/genv/snapshot/state/change"
)

// Where root owns the state, M can only start processes, which claim what they like, and ask
// root's service for changes. M does so on each of these hosts, and writes any state on the
// others. Users who keep the rules lose nothing for it where root owns the state.

// newForgeryEverywhere is a fleet in which M was on each host. If mixed is set, M writes the
// state of some of them.
func newForgeryEverywhere(seed uint64, mixed bool) *forgery {
	f := &forgery{Rand: rand.New(rand.NewPCG(seed, 14)), written: map[snapshot.Hostname]bool{}}
	for h := range 2 + f.IntN(2) {
		name := snapshot.Hostname(fmt.Sprintf("h%d", h))
		s := f.host()
		f.registerShells(s)
		f.honest.Hosts = append(f.honest.Hosts, snapshot.Host{Name: name, Snapshot: s})
	}
	f.policy = f.rules()
	for h, host := range f.honest.Hosts {
		f.written[host.Name] = mixed && h > 0 && f.coin()
		if f.written[host.Name] {
			host.Snapshot = f.forge(host.Snapshot)
		} else {
			host.Snapshot = f.ask(host.Snapshot)
		}
		f.forged.Hosts = append(f.forged.Hosts, host)
	}
	return f
}

// registerShells gives each environment a process, as all have that were activated. Its PID
// and the kernel of some are what M can read from /proc.
func (f *forgery) registerShells(s *snapshot.Snapshot) {
	for i := range s.Environments {
		s.Environments[i].PIDs = []snapshot.PID{snapshot.PID(50 + i)}
		if f.IntN(3) == 0 {
			s.Environments[i].KernelIDs = []string{fmt.Sprint("k", i)}
		}
	}
}

// ask is the host after M has asked root's service for changes and started processes.
func (f *forgery) ask(before *snapshot.Snapshot) *snapshot.Snapshot {
	files := state.Files{Environments: before.Environments, Devices: before.Devices}
	s := &snapshot.Snapshot{Processes: slices.Clone(before.Processes)}
	for range f.IntN(20) {
		next := state.Files{Environments: slices.Clone(files.Environments), Devices: slices.Clone(files.Devices)}
		asked, by := f.change(), f.asker(before)
		by, err := asked.Prepare(by)
		if err == nil {
			_, err = asked.Apply(&next, by)
		}
		if err != nil {
			continue
		}
		f.granted++
		next.RemoveEmpty(nil) // as each reading of the files does
		files = next
	}
	s.Environments, s.Devices = files.Environments, files.Devices
	for i := range f.IntN(8) {
		s.Processes = append(s.Processes, f.processOfM(snapshot.PID(firstOfM+i), s))
	}
	return s
}

// asker is M as the kernel reports it. The shells of environments have the PIDs from 50, their
// jobs those from 100, and M's processes those from 500.
func (f *forgery) asker(s *snapshot.Snapshot) change.Asker {
	return change.Asker{
		UID: uidM, PID: firstOfM, Now: f.date(), Username: func(uid snapshot.UID) snapshot.Username { return names[uid] },
		Owner: func(pid snapshot.PID) (snapshot.UID, error) {
			for i := range s.Environments {
				if slices.Contains(s.Environments[i].PIDs, pid) {
					return s.Environments[i].UID, nil
				}
			}
			for i := range s.Processes {
				if s.Processes[i].PID == pid {
					return *s.Processes[i].UID, nil
				}
			}
			if pid >= firstOfM {
				return uidM, nil
			}
			return 0, proc.ErrGone
		},
	}
}

// change is any change, most of which M may not make.
func (f *forgery) change() change.Change {
	eid := snapshot.EnvID(fmt.Sprint(10 + f.IntN(8)))
	var indices []snapshot.DeviceIndex
	for range f.IntN(4) {
		indices = append(indices, snapshot.DeviceIndex(f.IntN(6)))
	}
	config := change.Config{Name: pick(f, "", "x"), GPUMemory: f.capacity(), GPUs: pick(f, nil, ptr(1+f.IntN(6)))}
	pid, kernel := pick[snapshot.PID](f, 1, 50, 51, 52, 53, 100, 101, 102, 500, 501, 502), ""
	if f.IntN(4) == 0 {
		pid, kernel = 0, pick(f, "k0", "k1", "k2", "own")
	}
	switch f.IntN(5) {
	case 0:
		return change.Change{Enter: &change.Enter{EID: eid, PID: pid, Kernel: kernel, Config: config, Attach: f.coin(), OverSubscribe: f.coin(), Busy: indices}}
	case 1:
		a := &change.Attach{EID: eid, Indices: indices, Memory: config.GPUMemory, OverSubscribe: f.coin(), Configured: f.coin(), Exact: f.coin(), Unregistered: f.coin()}
		if len(indices) == 0 {
			a.Count = f.IntN(7)
		}
		return change.Change{Attach: a}
	case 2:
		return change.Change{Detach: &change.Detach{EID: eid, Indices: indices, Unregistered: f.coin()}}
	case 3:
		return change.Change{Configure: &change.Configure{EID: eid, Set: config, Clear: []change.Setting{change.Name, change.GPUMemory, change.GPUs}[:f.IntN(4)]}}
	}
	return change.Change{Leave: &change.Leave{PID: pid, Kernel: kernel, Own: f.coin()}}
}

// checkUntouched: with root's state everywhere, the state of users other than M is what it
// was, and those who keep the rules lose nothing, not even a device that they don't use.
func (f *forgery) checkUntouched(t *testing.T, seed uint64) {
	good := keepsTheRules(f.honest, f.last(f.honest))
	for _, r := range f.last(f.forged).Reports {
		for _, x := range r.Report.Terminate {
			by := startedBy(&x.Process)
			require.False(t, good[by], "seed %d: process %d of uid %d on %s ends because of %v", seed, x.Process.PID, by, r.Host, x.Because)
		}
		for _, d := range r.Report.Detach {
			require.False(t, good[d.Environment.UID], "seed %d: uid %d loses device %d on %s because of %v", seed, d.Environment.UID, d.Device, r.Host, d.Because)
		}
	}
	for h, host := range f.honest.Hosts {
		for i, d := range host.Snapshot.Devices {
			for _, a := range d.Attachments {
				if e := host.Snapshot.Environment(a.EID); e.UID != uidM {
					require.Equal(t, &a, f.forged.Hosts[h].Snapshot.Devices[i].Attachment(a.EID), "seed %d: device %d of %s", seed, i, host.Name)
					require.Equal(t, e, f.forged.Hosts[h].Snapshot.Environment(a.EID), "seed %d: %s", seed, host.Name)
				}
			}
		}
	}
}

// interferenceEverywhere checks a number of cases, and that they are worth it.
func interferenceEverywhere(t *testing.T, from, cases uint64) {
	acted, granted, written := 0, 0, 0
	for seed := from; seed < from+cases; seed++ {
		owned, mixed := newForgeryEverywhere(seed, false), newForgeryEverywhere(seed, true)
		owned.checkUntouched(t, seed)
		acted += owned.check(t, seed) + mixed.check(t, seed)
		granted += owned.granted + mixed.granted
		for _, w := range mixed.written {
			if w {
				written++
			}
		}
	}
	require.Greater(t, acted, int(cases), "something is done in these fleets")
	require.Greater(t, granted, int(cases), "M is granted changes")
	require.Greater(t, written, int(cases)/4, "and M writes state elsewhere")
}

func TestPropertyWhereRootOwnsTheStateNoForgeryHarms(t *testing.T) {
	interferenceEverywhere(t, 0, cases(800))
}

func TestSoakWhereRootOwnsTheStateNoForgeryHarms(t *testing.T) {
	soaks(t)
	interferenceEverywhere(t, 1_000_000, 500_000)
}
