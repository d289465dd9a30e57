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

// Account counts what a controller sees. It is not safe for concurrent use.
type Account struct {
	// MaxGap is the longest time between two looks that counts for what the earlier one showed; 0 for any.
	MaxGap time.Duration

	in    *time.Location
	known known
	last  time.Time // of the last look; zero before the first
	hosts map[snapshot.Hostname]*hostCounts
	sums  Sums
}

type hostCounts struct {
	snapshot *snapshot.Snapshot // the last one
	hostUses
	lost bool // it didn't answer since
}

// NewAccount returns an Account that has counted nothing. Its hours are those of a location.
func NewAccount(in *time.Location) *Account {
	return &Account{in: in, known: newKnown(), hosts: make(map[snapshot.Hostname]*hostCounts), sums: make(Sums)}
}

// Renewed returns an Account that has counted nothing, and knows the same names.
func (a *Account) Renewed() *Account {
	return &Account{
		MaxGap: a.MaxGap, in: a.in, known: a.known, hosts: make(map[snapshot.Hostname]*hostCounts),
		sums: make(Sums),
	}
}

// Look counts the time since the last look for what that one showed, and takes in what the
// hosts show now. A host that isn't in the cluster has left the fleet.
func (a *Account) Look(now time.Time, cluster snapshot.Cluster) {
	a.Settle(now)
	hosts := make(map[snapshot.Hostname]*hostCounts, len(cluster.Hosts))
	for i := range cluster.Hosts {
		h := &cluster.Hosts[i]
		before := a.hosts[h.Name]
		switch {
		case h.Err == nil && h.Snapshot != nil:
			hosts[h.Name] = a.seen(before, h)
		case before != nil:
			before.lost = true
			hosts[h.Name] = before
		}
	}
	a.hosts = hosts
}

// seen is a host that answered. One that hasn't changed answers with the same snapshot.
func (a *Account) seen(before *hostCounts, h *snapshot.Host) *hostCounts {
	if before != nil && before.snapshot == h.Snapshot {
		before.lost = false
		return before
	}
	return &hostCounts{snapshot: h.Snapshot, hostUses: usesOf(h.Snapshot, a.known.of(h.Name))}
}

// Settle counts the time since the last look, as at the end of a run.
func (a *Account) Settle(now time.Time) {
	last := a.last
	if a.last = now; last.IsZero() {
		return
	}
	elapsed := now.Sub(last) // by the monotonic clock, where there is one
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

// secondsBetween is the time between two looks, in which as much time elapsed. It ends at the second
// one by the wall clock, also if the clock was set since.
func secondsBetween(last, now time.Time, elapsed time.Duration) (from, to int64) {
	from, to = last.Unix(), now.Unix()
	if step := now.Round(0).Sub(last.Round(0)) - elapsed; step.Abs() > time.Second {
		from = to - int64(elapsed.Round(time.Second)/time.Second)
	}
	return from, to
}

// rates are what a second amounts to, of no Hour; in a gap, as if no host had answered.
func (a *Account) rates(gap bool) map[SumKey]*Amounts {
	rates := make(map[SumKey]*Amounts)
	add := func(kind Kind, name string, rate *Amounts) {
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

// Take returns what was counted since it was called last.
func (a *Account) Take() Sums {
	taken := a.sums
	a.sums = make(Sums)
	return taken
}

// Count counts new findings, and what came of reports.
func (a *Account) Count(now time.Time, events []enforce.Event) {
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

func (a *Account) outcome(hour int64, e *enforce.Event, o *order.Outcome) {
	t, d := e.Order.ItemOf(*o)
	switch o.Status {
	case order.StatusTerminated, order.StatusKilled, order.StatusSignalled:
		if t != nil {
			user := cmp.Or(gpus.UserName(t.Process.Account(nil)), userIn(e.Findings, t.Because))
			a.action(hour, e.Host, t.Process.Indices(), user, Amounts{Terminated: 1})
		}
	case order.StatusDetached:
		if d != nil {
			a.action(hour, e.Host, []snapshot.DeviceIndex{d.Device},
				gpus.UserName(d.Environment.Username, &d.Environment.UID), Amounts{Detached: 1})
		}
	}
}

// userIn is the user of the first of some findings, on hosts that don't report owners.
func userIn(findings []enforce.Finding, ids []string) snapshot.Username {
	for i := range findings {
		if f := &findings[i]; slices.Contains(ids, f.ID) {
			return gpus.UserName(f.User, f.UID)
		}
	}
	return ""
}

// action counts something that was found or done, on the first of its devices.
func (a *Account) action(
	hour int64, host snapshot.Hostname, devices []snapshot.DeviceIndex, user snapshot.Username, amounts Amounts,
) {
	names := a.known.of(host)
	model := ""
	if len(devices) > 0 {
		model = names.devices[devices[0]].model
	}
	sum := Sum{Amounts: amounts}
	a.sums.Add(SumKey{hour, OfAll, ""}, &sum)
	a.sums.Add(SumKey{hour, OfUser, string(names.user(user))}, &sum)
	a.sums.Add(SumKey{hour, OfHost, string(host)}, &sum) // empty for what is about several
	a.sums.Add(SumKey{hour, OfModel, model}, &sum)
}
