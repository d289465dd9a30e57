package enforce_test

import (
	"fmt"
	"slices"

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
