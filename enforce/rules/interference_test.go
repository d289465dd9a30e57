package rules_test

import (
	"cmp"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-3119e985/genv/enforce"
	"github.com/seed-3119e985/genv/enforce/order"
	"github.com/seed-3119e985/genv/snapshot"
	"github.com/seed-3119e985/genv/snapshot/proc/proctest"
)

// Whatever a user M forges on one host, by writing into both state files and by starting processes, no process of a
// user who keeps the rules ends for it on another host, and M gains nothing that genv's own commands would not give.

// uidM is the user who forges. uidNone has no account, so that state files can give it any name.
const (
	uidM    = snapshot.UID(1666)
	uidNone = snapshot.UID(4242)
)

// names are the accounts of all hosts.
var names = map[snapshot.UID]snapshot.Username{0: "root", 1001: "alice", 1002: "bob", 1003: "carol", 1009: "prof", uidM: "m"}

// forgery is a random fleet whose users have their processes in environments of their own, a random policy, and a
// random forgery on its first host. prof is exempt, and so are device 5 of every host and processes named Xorg that run
// as root.
type forgery struct {
	*rand.Rand
	policy stated
	honest snapshot.Cluster
	forged snapshot.Cluster
	// written are the hosts on which M wrote the state, granted the changes that root's service let M make on others.
	written map[snapshot.Hostname]bool
	granted int
}

func newForgery(seed uint64) *forgery {
	f := &forgery{Rand: rand.New(rand.NewPCG(seed, 9)), written: map[snapshot.Hostname]bool{"h0": true}}
	for h := range 2 + f.IntN(2) {
		name := snapshot.Hostname(fmt.Sprintf("h%d", h))
		f.honest.Hosts = append(f.honest.Hosts, snapshot.Host{Name: name, Snapshot: f.host()})
	}
	f.policy = f.rules()
	f.forged.Hosts = slices.Clone(f.honest.Hosts)
	f.forged.Hosts[0].Snapshot = f.forge(f.honest.Hosts[0].Snapshot)
	return f
}

func (f *forgery) coin() bool { return f.IntN(2) == 0 }

func pick[T any](f *forgery, list ...T) T { return list[f.IntN(len(list))] }

func (f *forgery) date() snapshot.Date { return snapshot.DateOf(noon(-f.IntN(600))) }

// host is a host as its users leave it: each process runs in an environment of its user's, mostly on its devices.
func (f *forgery) host() *snapshot.Snapshot {
	s := &snapshot.Snapshot{}
	for i := range 6 {
		s.Devices = append(s.Devices, snapshot.Device{Index: snapshot.DeviceIndex(i), TotalMemory: snapshot.MiB(80000)})
	}
	for i := range 1 + f.IntN(5) {
		uid := pick[snapshot.UID](f, 1001, 1001, 1002, 1003, 1009, uidM)
		e := snapshot.Environment{EID: snapshot.EnvID(fmt.Sprint(10 + i)), UID: uid, Username: names[uid], Creation: f.date()}
		if f.coin() {
			e.Config.GPUMemory = snapshot.MustMemory(fmt.Sprintf("%dg", 1+f.IntN(40)))
		}
		s.Environments = append(s.Environments, e)
		for d := range s.Devices {
			if f.IntN(4) == 0 {
				s.Devices[d].Attachments = append(s.Devices[d].Attachments, snapshot.Attachment{EID: e.EID, GPUMemory: e.Config.GPUMemory, Time: f.date()})
			}
		}
	}
	for i := range f.IntN(8) {
		e := &s.Environments[f.IntN(len(s.Environments))]
		p := f.process(snapshot.PID(100+i), e.UID)
		p.EID = e.EID
		if f.IntN(6) == 0 { // in a container, or started with sudo
			p.UID, p.Username = new(snapshot.UID(0)), "root"
			p.Container = pick(f, "", "0123")
		}
		if f.IntN(6) == 0 {
			f.contain(&p, e.UID)
		}
		p.Usage = f.usage(snapshot.AttachedTo(s.Devices, e.EID))
		if f.IntN(6) == 0 { // a title hides its environment
			p.EID, p.EnvUnknown, p.EnvOverwritten = "", true, true
		}
		s.Processes = append(s.Processes, p)
	}
	return s
}

func (f *forgery) process(pid snapshot.PID, uid snapshot.UID) snapshot.Process {
	return snapshot.Process{PID: pid, Start: snapshot.StartTime(pid), UID: &uid, Username: names[uid], Name: pick(f, "python", "Xorg")}
}

// usage is of some devices, mostly of those in the list.
func (f *forgery) usage(devices []snapshot.DeviceIndex) []snapshot.DeviceUsage {
	var list []snapshot.DeviceUsage
	for i := range snapshot.DeviceIndex(6) {
		if slices.Contains(devices, i) && f.IntN(3) > 0 || f.IntN(12) == 0 {
			list = append(list, snapshot.DeviceUsage{Index: i, Memory: snapshot.MiB(int64(f.IntN(9000)))})
		}
	}
	return list
}

func (f *forgery) rules() stated {
	all := enforce.Settings{
		NonEnvProcesses: f.coin(), EnvDevices: f.coin(), EnvMemory: f.coin(), SudoUsers: f.IntN(4) == 0, UnknownOutside: f.IntN(4) == 0,
		Warn: enforce.Warn{Cycles: f.IntN(2)}, RuleWarns: f.ruleWarns(),
	}
	if f.coin() {
		all.MaxDevices = new(f.IntN(6))
	}
	if f.coin() {
		all.MaxMemory = new(memory(int64(f.IntN(300)) * 1e9))
	}
	if f.coin() {
		all.MaxEnvs = new(f.IntN(5))
	}
	if f.coin() {
		all.Idle = &enforce.Idle{After: time.Minute}
	}
	if f.coin() {
		all.MaxDuration = time.Duration(f.IntN(600)) * time.Minute
	}
	return stated{all: all, fleet: enforce.Fleet{PauseCaps: f.coin()}, exempt: exemptProf}
}

func exemptProf(s enforce.Subject) bool {
	p := s.Process
	switch {
	case s.User == "prof", s.Device != nil && s.Device.Index == 5:
		return true
	case p == nil || p.UID == nil:
		return false
	}
	uid := *p.CountsForUID() // as a policy's exemptions go by it
	return uid == 1009 || uid == 0 && p.Container == "" && p.Name == "Xorg"
}

// forge is the host after M was there.
func (f *forgery) forge(before *snapshot.Snapshot) *snapshot.Snapshot {
	s := &snapshot.Snapshot{Processes: slices.Clone(before.Processes), Devices: slices.Clone(before.Devices)}
	for _, e := range before.Environments {
		switch f.IntN(5) {
		case 0: // removed
			continue
		case 1: // given away
			e.UID, e.Username = f.anyOwner()
		case 2:
			e.Config.GPUMemory, e.Creation = f.capacity(), f.date()
		}
		s.Environments = append(s.Environments, e)
	}
	for i := range f.IntN(6) {
		e := snapshot.Environment{EID: snapshot.EnvID(fmt.Sprint(20 + i)), Creation: f.date()}
		e.UID, e.Username = f.anyOwner()
		s.Environments = append(s.Environments, e)
	}
	for i := range s.Devices {
		s.Devices[i].Attachments = f.attachments(s, before.Devices[i].Attachments)
	}
	for i := range f.IntN(8) {
		s.Processes = append(s.Processes, f.processOfM(snapshot.PID(firstOfM+i), s))
	}
	return s
}

// anyOwner is an owner as a state file can name it: root's genv corrects the name where the uid has an account.
func (f *forgery) anyOwner() (snapshot.UID, snapshot.Username) {
	uid := pick[snapshot.UID](f, 0, 1001, 1001, 1002, 1003, 1009, uidM, uidM, uidNone)
	if name, ok := names[uid]; ok {
		return uid, name
	}
	return uid, pick[snapshot.Username](f, "alice", "bob", "prof", "")
}

func (f *forgery) capacity() snapshot.Memory {
	return pick(f, snapshot.Memory{}, snapshot.MustMemory("1b"), snapshot.MustMemory("12g"), snapshot.MustMemory("500g"))
}

func (f *forgery) attachments(s *snapshot.Snapshot, before []snapshot.Attachment) []snapshot.Attachment {
	var list []snapshot.Attachment
	for _, a := range before {
		switch f.IntN(5) {
		case 0:
			continue
		case 1:
			a.GPUMemory, a.Time = f.capacity(), f.date()
		}
		list = append(list, a)
	}
	for i := range s.Environments {
		eid := s.Environments[i].EID
		if f.IntN(4) == 0 && !slices.ContainsFunc(list, func(a snapshot.Attachment) bool { return a.EID == eid }) {
			list = append(list, snapshot.Attachment{EID: eid, GPUMemory: f.capacity(), Time: f.date()})
		}
	}
	return list
}

// processOfM claims what it likes. Its ancestors are M's and root's, and only what is registered for M counts of these.
func (f *forgery) processOfM(pid snapshot.PID, s *snapshot.Snapshot) snapshot.Process {
	p := f.process(pid, uidM)
	p.Usage = f.usage(nil)
	p.Usage = append(p.Usage, f.usage([]snapshot.DeviceIndex{0, 1, 2, 3, 4})...)
	slices.SortFunc(p.Usage, func(a, b snapshot.DeviceUsage) int { return cmp.Compare(a.Index, b.Index) })
	p.Usage = slices.CompactFunc(p.Usage, func(a, b snapshot.DeviceUsage) bool { return a.Index == b.Index })
	if len(s.Environments) > 0 {
		if e := pick(f, s.Environments...); e.UID == uidM && f.coin() {
			p.Inherited = e.EID
		}
	}
	switch f.IntN(5) {
	case 0:
		p.EnvUnknown, p.EnvOverwritten = p.Inherited == "", f.coin() && p.Inherited == ""
		p.EID = p.Inherited
	case 1:
		p.EID = p.Inherited
	case 2:
		p.EID = "bogus"
	default:
		if len(s.Environments) > 0 {
			p.EID = pick(f, s.Environments...).EID
		}
	}
	if f.IntN(3) == 0 {
		f.contain(&p, uidM)
		f.aim(&p, s)
	}
	return p
}

// last is what the last of several cycles concludes.
func (f *forgery) last(cluster snapshot.Cluster) enforce.Plan {
	var memory controllerMemory
	var plan enforce.Plan
	for i := range 4 {
		plan = memory.Judge(f.policy, cluster, noon(0).Add(time.Duration(i)*15*time.Second*2))
	}
	return plan
}

// keepsTheRules says which users have nothing found against them.
func keepsTheRules(cluster snapshot.Cluster, plan enforce.Plan) map[snapshot.UID]bool {
	good := map[snapshot.UID]bool{1001: true, 1002: true, 1003: true}
	blame := func(uid snapshot.UID) { delete(good, uid) }
	for _, f := range plan.Findings {
		for uid, name := range names {
			if f.User == name {
				blame(uid)
			}
		}
		for _, ref := range f.Terminate {
			blame(startedBy(processAt(cluster, ref)))
		}
	}
	return good
}

func processAt(cluster snapshot.Cluster, ref enforce.ProcessRef) *snapshot.Process {
	for _, h := range cluster.Hosts {
		for i := range h.Snapshot.Processes {
			if h.Name == ref.Host && h.Snapshot.Processes[i].PID == ref.PID {
				return &h.Snapshot.Processes[i]
			}
		}
	}
	return nil
}

// check compares what is done with and without the forgery.
func (f *forgery) check(t *testing.T, seed uint64) (forgedActions int) {
	plan, forged := f.last(f.honest), f.last(f.forged)
	good := keepsTheRules(f.honest, plan)
	for _, o := range forged.Orders {
		forgedActions += len(o.Order.Terminate) + len(o.Order.Detach)
		if f.written[o.Host] {
			continue
		}
		for _, x := range o.Order.Terminate {
			by := startedBy(&x.Process)
			require.False(t, good[by], "seed %d: process %d of uid %d on %s ends because of %v", seed, x.Process.PID, by, o.Host, x.Because)
		}
		for _, d := range o.Order.Detach {
			used := f.usedBy(o.Host, d)
			require.False(t, used && good[d.Environment.UID], "seed %d: uid %d loses device %d, which it uses, on %s because of %v", seed, d.Environment.UID, d.Device, o.Host, d.Because)
		}
	}
	f.checkGain(t, seed, forged)
	return forgedActions
}

// usedBy reports whether a process of the environment's uid uses the device.
func (f *forgery) usedBy(host snapshot.Hostname, d order.Detachment) bool {
	for _, h := range f.forged.Hosts {
		for i := range h.Snapshot.Processes {
			p := &h.Snapshot.Processes[i]
			mine := p.EID == d.Environment.EID || p.EnvUnknown
			if h.Name == host && mine && startedBy(p) == d.Environment.UID && p.Uses(d.Device) != nil {
				return true
			}
		}
	}
	return false
}

// checkGain: those of M's processes that go on are such as M could have had with genv's own commands: in environments
// of M's, on devices attached to them, and on no more than the cap allows. A container that M isn't proved to have
// started may be in any environment, on its devices.
func (f *forgery) checkGain(t *testing.T, seed uint64, plan enforce.Plan) {
	ends, expires := make(map[enforce.ProcessRef]bool), false
	for _, finding := range plan.Findings {
		// What is detached for its age counts no more; what goes on using it counts in the next cycle.
		expires = expires || finding.Rule == enforce.RuleIdle || finding.Rule == enforce.RuleMaxDuration
		for _, ref := range finding.Terminate {
			ends[ref] = true
		}
	}
	devices := make(map[string]bool)
	for _, h := range f.forged.Hosts {
		for i := range h.Snapshot.Processes {
			p := &h.Snapshot.Processes[i]
			if startedBy(p) != uidM || p.EnvUnknown || ends[enforce.ProcessRef{Host: h.Name, PID: p.PID}] {
				continue
			}
			f.checkProcess(t, seed, h, p)
			if h.Snapshot.Environment(p.EID) != nil && !p.StartedByUnknown() {
				for _, u := range p.Usage {
					if u.Index != 5 && !f.sparedOn(h, u.Index) {
						devices[fmt.Sprint(h.Name, u.Index)] = true
					}
				}
			}
		}
	}
	if limit := f.policy.all.MaxDevices; limit != nil && !expires {
		require.LessOrEqual(t, len(devices), *limit, "seed %d: M's processes use more than the cap", seed)
	}
}

// sparedOn reports whether an exempt process of root's, in an environment of M's, is on the device: no cap takes that.
func (f *forgery) sparedOn(h snapshot.Host, index snapshot.DeviceIndex) bool {
	return slices.ContainsFunc(h.Snapshot.Processes, func(p snapshot.Process) bool {
		env := h.Snapshot.Environment(p.EID)
		return *p.UID == 0 && env != nil && env.UID == uidM && p.Uses(index) != nil && f.policy.exempt(enforce.Subject{Process: &p})
	})
}

func (f *forgery) checkProcess(t *testing.T, seed uint64, h snapshot.Host, p *snapshot.Process) {
	if onlyDevice5 := !slices.ContainsFunc(p.Usage, func(u snapshot.DeviceUsage) bool { return u.Index != 5 }); onlyDevice5 {
		return
	}
	e := h.Snapshot.Environment(p.EID)
	if f.policy.all.NonEnvProcesses {
		require.True(t, e != nil && (e.UID == uidM || p.StartedByUnknown()), "seed %d: process %d is in no environment of M's and goes on", seed, p.PID)
	}
	if f.policy.all.EnvDevices && e != nil && (e.UID == uidM || p.StartedByUnknown()) {
		for _, u := range p.Usage {
			require.True(t, u.Index == 5 || h.Snapshot.Device(u.Index).Attachment(p.EID) != nil, "seed %d: process %d goes on with device %d", seed, p.PID, u.Index)
		}
	}
}

// interference checks a number of cases, and that they are worth it.
func interference(t *testing.T, from, cases uint64) {
	acted := 0
	for seed := from; seed < from+cases; seed++ {
		acted += newForgery(seed).check(t, seed)
	}
	require.Greater(t, acted, int(cases), "something is done in these fleets")
}

func TestPropertyForgeryOnOneHostHarmsNoOneElsewhere(t *testing.T) {
	interference(t, 0, proctest.Cases(10_000))
}

func TestSoakForgeryOnOneHostHarmsNoOneElsewhere(t *testing.T) {
	proctest.Soak(t)
	interference(t, 1_000_000, 1_000_000)
}
