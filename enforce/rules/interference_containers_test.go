package rules_test

import (
	"encoding/json"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-3119e985/genv/enforce"
	"github.com/seed-3119e985/genv/snapshot"
	"github.com/seed-3119e985/genv/snapshot/gpus"
	"github.com/seed-3119e985/genv/snapshot/proc"
	"github.com/seed-3119e985/genv/snapshot/proc/proctest"
	"github.com/seed-3119e985/genv/snapshot/state"
	"github.com/seed-3119e985/genv/snapshot/state/change"
)

// contain puts a process into a container of root's runtime. Someone who starts one chooses its uid, what it is called
// and the environment whose id it carries. Only who started it can't be chosen: that is proved, or it isn't.
func (f *forgery) contain(p *snapshot.Process, starter snapshot.UID) {
	uid := pick[snapshot.UID](f, 0, 0, 0, starter)
	if starter == uidM {
		uid = pick[snapshot.UID](f, 0, 0, 1001, 1001, 1002, 1003, 1009, uidM, uidNone)
	}
	p.UID, p.Username, p.Inherited = &uid, names[uid], ""
	p.Container = pick(f, "0123", "4567")
	p.ContainerInfo = &snapshot.ContainerInfo{
		Runtime: "docker", Name: pick(f, "web", "alice", "prof"), Image: pick(f, "", "alice:1"), Init: f.coin(), Unknown: f.IntN(8) == 0,
		Labels: map[string]string{"genv.uid": fmt.Sprint(uid)}, EID: pick(f, "", p.EID),
	}
	if f.coin() {
		p.ContainerInfo.UID, p.ContainerInfo.User, p.ContainerInfo.Proof = &starter, names[starter], snapshot.ProofRecord
	}
}

// aim has most containers of M use the devices of another process, in its environment, to exceed the capacity together.
func (f *forgery) aim(p *snapshot.Process, s *snapshot.Snapshot) {
	if len(s.Processes) == 0 || f.IntN(4) == 0 {
		return
	}
	other := pick(f, s.Processes...)
	if other.EID == "" || len(other.Usage) == 0 {
		return
	}
	p.EID, p.EnvUnknown, p.EnvOverwritten, p.Usage = other.EID, false, false, slices.Clone(other.Usage)
	most := 20_000
	if e := s.Environment(other.EID); e != nil && e.Config.GPUMemory.Known() {
		most = 1 + int(min(e.Config.GPUMemory.Bytes()>>20, 80_000))
	}
	for i := range p.Usage {
		p.Usage[i].Memory = snapshot.MiB(int64(f.IntN(most)))
	}
}

// firstOfM is the first PID of the processes that M starts in order to harm others.
const firstOfM = 500

// startedBy is who started a process, as far as others can know: of an honest container without a proof it is root.
func startedBy(p *snapshot.Process) snapshot.UID {
	switch c := p.ContainerInfo; {
	case p.PID >= firstOfM:
		return uidM
	case c == nil:
		return *p.UID
	case c.UID != nil:
		return *c.UID
	}
	return 0
}

// intrusion is a host on which users break rules for some cycles, and the same host with
// containers of M's without a proof, which carry the ids of the users' environments.
type intrusion struct {
	*forgery
	cycles, intruded []snapshot.Cluster
}

func newIntrusion(seed uint64) *intrusion {
	f := &forgery{Rand: rand.New(rand.NewPCG(seed, 11))}
	s := f.host()
	for len(s.Processes) < 8 {
		s.Processes = append(s.Processes, f.processOfM(snapshot.PID(100+len(s.Processes)), s))
	}
	containers := s.Processes[:0:0]
	for i := range 4 {
		p := f.processOfM(snapshot.PID(firstOfM+i), s)
		f.contain(&p, uidM)
		p.ContainerInfo.UID, p.ContainerInfo.User, p.ContainerInfo.Proof = nil, "", ""
		f.aim(&p, s)
		containers = append(containers, p)
	}
	f.policy = stated{all: enforce.Settings{NonEnvProcesses: f.coin(), EnvDevices: f.IntN(4) > 0, EnvMemory: f.IntN(4) > 0, Warn: f.warn(), RuleWarns: f.ruleWarns()}}
	alices := f.warn()
	f.policy.asked = ofUser("alice", func(s *enforce.Settings) { s.Warn = alices })
	x := &intrusion{forgery: f}
	present, intruding := make(map[snapshot.PID]bool), make(map[snapshot.PID]bool)
	for range 8 {
		honest, both := *s, *s
		honest.Processes = f.alternate(present, s.Processes)
		both.Processes = slices.Concat(honest.Processes, f.alternate(intruding, containers))
		x.cycles = append(x.cycles, snapshot.Cluster{Hosts: []snapshot.Host{{Name: "h0", Snapshot: &honest}}})
		x.intruded = append(x.intruded, snapshot.Cluster{Hosts: []snapshot.Host{{Name: "h0", Snapshot: &both}}})
	}
	return x
}

// ruleWarns is the own warning of a rule, or none.
func (f *forgery) ruleWarns() map[enforce.Rule]enforce.Warn {
	rules := enforce.Rules()
	if f.coin() {
		return nil
	}
	return map[enforce.Rule]enforce.Warn{rules[f.IntN(len(rules))]: f.warn()}
}

func (f *forgery) warn() enforce.Warn {
	return enforce.Warn{Cycles: f.IntN(4), For: time.Duration(f.IntN(4)) * time.Minute}
}

// alternate starts or ends some processes, and lists those that run.
func (f *forgery) alternate(running map[snapshot.PID]bool, processes []snapshot.Process) (list []snapshot.Process) {
	for _, p := range processes {
		if f.IntN(4) == 0 {
			running[p.PID] = !running[p.PID]
		}
		if running[p.PID] {
			list = append(list, p)
		}
	}
	return list
}

// fates is what is found in each cycle about users, with the warnings, and what ends for it:
// by the finding. What is about no user, or about a container without a proof, is left out.
func (x *intrusion) fates(t *testing.T, cycles []snapshot.Cluster) (fates []map[string]string, intruders int) {
	var memory controllerMemory
	for i, cluster := range cycles {
		plan := memory.Judge(x.policy, cluster, noon(i))
		fate := make(map[string]string)
		for _, finding := range plan.Findings {
			unproved := finding.User == ""
			for _, ref := range finding.Terminate {
				unproved = unproved || processAt(cluster, ref).StartedByUnknown()
			}
			if unproved {
				require.NotContains(t, []snapshot.Username{"alice", "bob", "carol", "prof", "m"}, finding.User)
				intruders++
				continue
			}
			data := proctest.Try(json.Marshal(finding)).OK(t)
			fate[finding.ID] = string(data)
		}
		fates = append(fates, fate)
	}
	return fates, intruders
}

// TestPropertyUnprovedContainersChangeNoUsersFate: whatever containers M starts for users'
// environments, as any uid and with any memory: each user has the same findings in the same
// cycles, with the same warnings, and the same processes end.
func TestPropertyUnprovedContainersChangeNoUsersFate(t *testing.T) {
	findings, intruders := 0, 0
	for seed := range proctest.Cases(1500) {
		x := newIntrusion(seed)
		want, _ := x.fates(t, x.cycles)
		got, caught := x.fates(t, x.intruded)
		intruders += caught
		for i := range want {
			findings += len(want[i])
			require.Equal(t, slices.Sorted(maps.Keys(want[i])), slices.Sorted(maps.Keys(got[i])), "seed %d, cycle %d", seed, i)
			require.Equal(t, want[i], got[i], "seed %d, cycle %d", seed, i)
		}
	}
	require.Greater(t, findings, int(proctest.Cases(1500)), "users are found to break rules")
	require.Greater(t, intruders, int(proctest.Cases(1500)), "and so are the containers")
}

// Where root owns the state, M can only start processes, which claim what they like, and ask
// root's service for changes. M does so on each of these hosts, and writes any state on the
// others. Users who keep the rules lose nothing for it where root owns the state.

// newForgeryEverywhere is a fleet in which M was on each host. If mixed is set, M writes the state of some of them.
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

// registerShells gives each environment a process, as activation does. M can read its PID and the kernel of some.
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

// asker is M as the kernel reports it. Shells have the PIDs from 50, their jobs those from 100, M's processes from 500.
func (f *forgery) asker(s *snapshot.Snapshot) change.Requester {
	return change.Requester{
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
	states := make(map[snapshot.DeviceIndex]gpus.State)
	for _, index := range indices {
		states[index] = pick(f, gpus.States()...)
	}
	config := snapshot.EnvConfig{Name: pick(f, "", "x"), GPUMemory: f.capacity(), GPUs: pick(f, nil, new(1+f.IntN(6)))}
	pid, kernel := pick[snapshot.PID](f, 1, 50, 51, 52, 53, 100, 101, 102, 500, 501, 502), ""
	if f.IntN(4) == 0 {
		pid, kernel = 0, pick(f, "k0", "k1", "k2", "own")
	}
	switch f.IntN(5) {
	case 0:
		return change.Change{Enter: &change.Enter{EID: eid, PID: pid, Kernel: kernel, Config: config, Attach: f.coin(), OverSubscribe: f.coin(), Availability: state.Availability{States: states}}}
	case 1:
		a := &change.Attach{AttachRequest: state.AttachRequest{EID: eid, Indices: indices, Memory: config.GPUMemory, OverSubscribe: f.coin()}, Configured: f.coin(), Exact: f.coin(), Unregistered: f.coin()}
		if len(indices) == 0 {
			a.Count = f.IntN(7)
		}
		return change.Change{Attach: a}
	case 2:
		return change.Change{Detach: &change.Detach{EID: eid, Indices: indices, Unregistered: f.coin()}}
	case 3:
		return change.Change{Configure: &change.Configure{EID: eid, Set: config, Clear: []string{change.Name, change.GPUMemory, change.GPUs}[:f.IntN(4)]}}
	}
	return change.Change{Leave: &change.Leave{PID: pid, Kernel: kernel, Own: f.coin()}}
}

// checkUntouched: with root's state everywhere, that of others stays, and those who keep the rules lose nothing.
func (f *forgery) checkUntouched(t *testing.T, seed uint64) {
	good := keepsTheRules(f.honest, f.last(f.honest))
	for _, o := range f.last(f.forged).Orders {
		for _, x := range o.Order.Terminate {
			by := startedBy(&x.Process)
			require.False(t, good[by], "seed %d: process %d of uid %d on %s ends because of %v", seed, x.Process.PID, by, o.Host, x.Because)
		}
		for _, d := range o.Order.Detach {
			require.False(t, good[d.Environment.UID], "seed %d: uid %d loses device %d on %s because of %v", seed, d.Environment.UID, d.Device, o.Host, d.Because)
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
	interferenceEverywhere(t, 0, proctest.Cases(800))
}

func TestSoakWhereRootOwnsTheStateNoForgeryHarms(t *testing.T) {
	proctest.Soak(t)
	interferenceEverywhere(t, 1_000_000, 500_000)
}
