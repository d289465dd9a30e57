package enforce_test

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
)

// contain puts a process into a container of root's runtime. Whoever starts one chooses its
// uid, what it is called and the environment whose id it carries. Only who started it can't
// be chosen: that is proved, or it isn't.
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

// aim has most containers of M use the devices of another process, in its environment, where
// they may exceed the capacity together.
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

// startedBy is who started a process, as far as others can be expected to know: of an honest
// container without a proof it is root.
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
	f.policy = stated{all: enforce.Settings{NonEnvProcesses: f.coin(), EnvDevices: f.IntN(4) > 0, EnvMemory: f.IntN(4) > 0, Warn: f.warn()}}
	alices := f.warn()
	f.policy.asked = func(q enforce.Query, s *enforce.Settings) {
		if q.User == "alice" {
			s.Warn = alices
		}
	}
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
				unproved = unproved || processAt(cluster, ref).Unproved()
			}
			if unproved {
				require.NotContains(t, []snapshot.Username{"alice", "bob", "carol", "prof", "m"}, finding.User)
				intruders++
				continue
			}
			data, err := json.Marshal(finding)
			require.NoError(t, err)
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
	for seed := range cases(1500) {
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
	require.Greater(t, findings, int(cases(1500)), "users are found to break rules")
	require.Greater(t, intruders, int(cases(1500)), "and so are the containers")
}
