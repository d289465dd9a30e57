package usage

import (
	"cmp"
	"slices"
	"time"

	"github.com/seed-3119e985/genv/enforce"
	"github.com/seed-3119e985/genv/snapshot"
	"github.com/seed-3119e985/genv/snapshot/gpus"
)

// Count counts new findings, and what came of reports.
func (a *Account) Count(now time.Time, events []enforce.Event) {
	hour := HourOf(now.Unix(), a.in)
	for i := range events {
		switch e := &events[i]; {
		case e.Kind == enforce.EventNew && !e.Resumed && e.Finding != nil:
			f := e.Finding
			a.action(hour, f.Host, f.Devices, gpus.UserName(f.User, f.UID), Amounts{Findings: 1})
		case e.Kind == enforce.EventOutcome && e.Report != nil:
			for j := range e.Outcomes {
				a.outcome(hour, e, &e.Outcomes[j])
			}
		}
	}
}

func (a *Account) outcome(hour int64, e *enforce.Event, o *enforce.Outcome) {
	switch o.Status {
	case enforce.StatusTerminated, enforce.StatusKilled, enforce.StatusSignalled:
		if at := slices.IndexFunc(e.Report.Terminate, func(t enforce.Termination) bool { return t.Process.PID == o.PID }); at >= 0 {
			t := &e.Report.Terminate[at]
			user := cmp.Or(gpus.Owner(&t.Process, nil), userIn(e.Findings, t.Because))
			a.action(hour, e.Host, t.Process.Indices(), user, Amounts{Terminated: 1})
		}
	case enforce.StatusDetached:
		if at := slices.IndexFunc(e.Report.Detach, func(d enforce.Detachment) bool { return d.Device == o.Device && d.Environment.EID == o.EID }); at >= 0 {
			d := &e.Report.Detach[at]
			a.action(hour, e.Host, []snapshot.DeviceIndex{d.Device}, gpus.UserName(d.Environment.Username, &d.Environment.UID), Amounts{Detached: 1})
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
		model = names.model(devices[0], "")
	}
	sum := Sum{Amounts: amounts}
	a.sums.Add(SumKey{hour, OfAll, ""}, &sum)
	a.sums.Add(SumKey{hour, ByUser, string(names.user(user))}, &sum)
	a.sums.Add(SumKey{hour, ByHost, string(host)}, &sum) // empty for what is about several
	a.sums.Add(SumKey{hour, ByModel, model}, &sum)
}
