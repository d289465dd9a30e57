package usage

import (
	"cmp"
	"slices"
	"time"

	"github.com/seed-3119e985/genv/enforce"
	"github.com/seed-3119e985/genv/enforce/order"
	"github.com/seed-3119e985/genv/snapshot"
	"github.com/seed-3119e985/genv/snapshot/gpus"
)

// Meter counts what a controller sees. It isn't safe for concurrent use.
type Meter struct {
	// MaxGap is the longest time between looks that counts as the earlier one showed; 0: any.
	MaxGap time.Duration

	in    *time.Location
	names *Names
	last  time.Time // of the last look; zero before the first
	hosts map[snapshot.Hostname]*hostUses
	sums  Sums
}

// NewMeter returns an empty Meter. Its hours are those of the location.
func NewMeter(in *time.Location) *Meter { return &Meter{in: in, names: NewNames(), sums: make(Sums)} }

// Forget restarts counting with the next look.
func (a *Meter) Forget() { a.last, a.hosts = time.Time{}, nil }

// Look counts the time since the last look as that one showed, and takes in the present one. Hosts not in the cluster
// have left the fleet.
func (a *Meter) Look(now time.Time, cluster snapshot.Cluster) {
	a.Settle(now)
	hosts := make(map[snapshot.Hostname]*hostUses, len(cluster.Hosts))
	for i := range cluster.Hosts {
		h := &cluster.Hosts[i]
		before, answered := a.hosts[h.Name], h.Err == nil && h.Snapshot != nil
		if answered && (before == nil || before.snapshot != h.Snapshot) { // else unchanged
			before = usesOf(h.Snapshot, a.names.of(h.Name))
		}
		if before != nil {
			before.lost = !answered
			hosts[h.Name] = before
		}
	}
	a.hosts = hosts
}

// Settle counts the time since the last look.
func (a *Meter) Settle(now time.Time) {
	last := a.last
	if a.last = now; last.IsZero() {
		return
	}
	elapsed := now.Sub(last) // by the monotonic clock, if there is one
	from, to := secondsBetween(last, now, elapsed)
	if from >= to {
		return
	}
	rates := a.rates(a.MaxGap > 0 && elapsed > a.MaxGap)
	for from < to {
		hour := HourOf(from, a.in)
		end := min(to, hour+3600)
		for key, rate := range rates {
			key.Hour = hour
			sum := Sum{Peak: rate.Attached}
			sum.add(rate, end-from)
			a.sums.Add(key, &sum)
		}
		from = end
	}
}

// secondsBetween ends at the present wall-clock second, even if the clock was set.
func secondsBetween(last, now time.Time, elapsed time.Duration) (from, to int64) {
	from, to = last.Unix(), now.Unix()
	if step := now.Round(0).Sub(last.Round(0)) - elapsed; step.Abs() > time.Second {
		from = to - int64(elapsed.Round(time.Second)/time.Second)
	}
	return from, to
}

func (a *Meter) rates(gap bool) map[SumKey]*Amounts {
	rates := make(map[SumKey]*Amounts)
	add := func(kind SumKind, name string, rate *Amounts) {
		if *rate == (Amounts{}) {
			return
		}
		key := SumKey{Kind: kind, Name: name}
		if rates[key] == nil {
			rates[key] = new(Amounts)
		}
		rates[key].Add(rate)
	}
	var all Amounts
	for name, h := range a.hosts {
		var host Amounts
		for i := range h.byUser {
			rate := h.byUser[i].rate(h.lost || gap)
			add(OfUser, string(h.byUser[i].user), &rate)
		}
		for i := range h.byDevice {
			rate := h.byDevice[i].rate(h.lost || gap)
			add(OfModel, h.byDevice[i].model, &rate)
			host.Add(&rate)
		}
		add(OfHost, string(name), &host)
		all.Add(&host)
	}
	add(OfAll, "", &all)
	return rates
}

// Take returns the counts since the last call.
func (a *Meter) Take() Sums {
	taken := a.sums
	a.sums = make(Sums)
	return taken
}

// Count counts new findings and the outcomes of orders.
func (a *Meter) Count(now time.Time, events []enforce.Event) {
	hour := HourOf(now.Unix(), a.in)
	for i := range events {
		switch e := &events[i]; {
		case e.Kind == enforce.EventNew && !e.Resumed && e.Finding != nil:
			f := e.Finding
			a.action(hour, f.Host, f.Devices, gpus.UserName(f.User, f.UID), Amounts{Findings: 1})
		case e.Kind == enforce.EventOutcome && e.Order != nil:
			for j := range e.Outcomes {
				a.outcome(hour, e, &e.Outcomes[j])
			}
		}
	}
}

func (a *Meter) outcome(hour int64, e *enforce.Event, o *order.Outcome) {
	t, d := e.Order.ItemOf(*o)
	switch {
	case o.Status.Ended() && t != nil:
		user := gpus.UserName(t.Process.Account(nil))
		because := func(f enforce.Finding) bool { return slices.Contains(t.Because, f.ID) }
		if i := slices.IndexFunc(e.Findings, because); user == "" && i >= 0 { // the host doesn't report owners
			user = gpus.UserName(e.Findings[i].User, e.Findings[i].UID)
		}
		a.action(hour, e.Host, t.Process.Indices(), user, Amounts{Terminated: 1})
	case o.Status == order.StatusDetached && d != nil:
		a.action(hour, e.Host, []snapshot.DeviceIndex{d.Device},
			gpus.UserName(d.Environment.Username, &d.Environment.UID), Amounts{Detached: 1})
	}
}

// action counts something on its first device.
func (a *Meter) action(
	hour int64, host snapshot.Hostname, devices []snapshot.DeviceIndex, user snapshot.Username, amounts Amounts,
) {
	names := a.names.of(host)
	model := ""
	if len(devices) > 0 {
		model = names.devices[devices[0]][1]
	}
	for kind, name := range map[SumKind]string{
		OfAll: "", OfUser: string(names.user(user)), OfModel: model, OfHost: string(host), // empty for several hosts
	} {
		a.sums.Add(SumKey{hour, kind, name}, &Sum{Amounts: amounts})
	}
}

type deviceUse struct {
	device         snapshot.DeviceIndex
	model          string
	user           snapshot.Username
	attached, used bool
	blind          bool  // its processes, or the GPU of its attachment, are unknown
	utilization    *int  // nil if it wasn't measured
	memory         int64 // MiB
}

const computesFrom = 6 // per cent: notebooks and waiting processes cause up to 5

// rate returns the amounts of one second. lost: the host stopped answering.
func (u *deviceUse) rate(lost bool) (a Amounts) {
	switch {
	case lost && u.attached:
		return Amounts{Unknown: 1}
	case lost:
		return Amounts{}
	}
	if u.attached {
		a.Attached = 1
	}
	switch {
	case u.used:
		a.Used, a.Memory = 1, u.memory
		if u.utilization == nil {
			a.Unmeasured = 1
		} else if *u.utilization >= computesFrom {
			a.Computing = 1
		}
	case u.attached && u.blind:
		a.Unmeasured = 1
	case u.attached:
		a.Idle = 1
	}
	return a
}

type hostUses struct {
	snapshot         *snapshot.Snapshot
	byUser, byDevice []deviceUse // one per user and device, and one per device
	lost             bool        // no answer since
}

func usesOf(s *snapshot.Snapshot, names *hostNames) *hostUses {
	environments := snapshot.ByID(s.Environments)
	devices := make(map[snapshot.DeviceIndex]deviceUse, len(s.Devices))
	var uses []deviceUse
	for i := range s.Devices {
		d := &s.Devices[i]
		blank := deviceUse{device: d.Index, model: names.model(d), blind: d.ProcessesUnknown || d.Failed ||
			d.Unidentified, utilization: d.Utilization}
		devices[d.Index] = blank
		for j := range d.Attachments {
			u := blank
			u.attached, u.user = true, names.user(gpus.UserName(environments[d.Attachments[j].EID].Account()))
			uses = append(uses, u)
		}
	}
	for i := range s.Processes {
		p := &s.Processes[i]
		if p.NodeMissing {
			continue
		}
		user := names.user(memberOf(p, environments))
		for _, usage := range p.Usage {
			if u, known := devices[usage.Index]; known {
				u.used, u.memory, u.user = true, usage.Memory.Bytes()>>20, user
				uses = append(uses, u)
			}
		}
	}
	slices.SortStableFunc(uses, func(a, b deviceUse) int {
		return cmp.Or(cmp.Compare(a.device, b.device), cmp.Compare(a.user, b.user))
	})
	byUser := joined(uses, func(a, b *deviceUse) bool { return a.device == b.device && a.user == b.user })
	byDevice := joined(byUser, func(a, b *deviceUse) bool { return a.device == b.device })
	return &hostUses{snapshot: s, byUser: byUser, byDevice: byDevice}
}

// memberOf is for whom a process counts: the user of an environment that admits it, else its owner.
func memberOf(p *snapshot.Process, environments map[snapshot.EnvID]*snapshot.Environment) snapshot.Username {
	if user, uid := snapshot.EnvironmentOf(p, environments).Account(); uid != nil {
		return gpus.UserName(user, uid)
	}
	return gpus.UserName(p.Account(nil))
}

func joined(uses []deviceUse, same func(a, b *deviceUse) bool) (list []deviceUse) {
	for i := range uses {
		u, last := &uses[i], len(list)-1
		if last < 0 || !same(&list[last], u) {
			list = append(list, *u)
			continue
		}
		list[last].attached, list[last].used = list[last].attached || u.attached, list[last].used || u.used
		list[last].memory += u.memory
	}
	return slices.Clip(list)
}
