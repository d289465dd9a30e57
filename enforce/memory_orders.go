package enforce

import (
	"cmp"
	"slices"
	"time"

	"github.com/seed-3119e985/genv/enforce/order"
	"github.com/seed-3119e985/genv/snapshot"
)

// Learn returns the memory with what came of an order, outcome by outcome. A process that even SIGKILL did not end
// hangs in the kernel: it stays in the findings, and no further attempt is made while it is there. One that its host
// refused to end is tried again after a while, and one that survived SIGTERM alone, which may be saving its work. If
// the outcome is unknown, what Begin noted stays. Nothing further is done on the host before it is asked again.
func (m Memory) Learn(sent order.OfHost, outcomes []order.Outcome, now time.Time) Memory {
	m.Hosts = copyOf(m.Hosts)
	host := m.Hosts[sent.Host]
	host.Acted = now
	m.Hosts[sent.Host] = host
	start := make(map[snapshot.PID]snapshot.StartTime, len(sent.Order.Terminate))
	for i := range sent.Order.Terminate {
		p := &sent.Order.Terminate[i].Process
		start[p.PID] = p.Start
	}
	if slices.ContainsFunc(outcomes, func(o order.Outcome) bool { return !o.Status.IsOver() }) {
		isSent := func(o order.OfHost) bool { return o.Order.ID == sent.Order.ID }
		m.Ended = slices.DeleteFunc(slices.Clone(m.Ended), isSent) // what is left is found again
	}
	m.Stuck, m.LeftAlone = copyOf(m.Stuck), copyOf(m.LeftAlone)
	for _, o := range outcomes {
		p := snapshot.ProcessKey{Host: sent.Host, PID: o.PID, Start: start[o.PID]}
		if p.PID == 0 || p.Start == 0 || o.Status == order.StatusUnknown {
			continue
		}
		delete(m.LeftAlone, p)
		delete(m.Stuck, p)
		refused, survived := o.Status == order.StatusRefused, o.Status == order.StatusSurvived
		if refused || survived && sent.Order.Kill {
			m.Stuck[p] = o.Reason
		}
		if refused || survived && !sent.Order.Kill {
			m.LeftAlone[p] = now.Add(againAfter)
		}
	}
	return m
}

// Begin returns the memory with an order that is sent to a host, and End without the
// order with this ID. Until the processes have had their grace, they get no second
// SIGTERM if the connection or the controller dies: many programs take that for an
// order to end at once, whatever they are saving.
func (m Memory) Begin(o order.OfHost, now time.Time) Memory {
	m.UnderWay = append(slices.Clone(m.UnderWay), o)
	m.LeftAlone = copyOf(m.LeftAlone)
	for i := range o.Order.Terminate {
		if p := &o.Order.Terminate[i].Process; p.Start != 0 {
			key := snapshot.ProcessKey{Host: o.Host, PID: p.PID, Start: p.Start}
			m.LeftAlone[key] = now.Add(cmp.Or(o.Order.Grace, order.DefaultGrace))
		}
	}
	return m
}

// End is described with Begin.
func (m Memory) End(id string) Memory {
	m.Ended = slices.Clone(m.Ended)
	m.UnderWay = slices.DeleteFunc(slices.Clone(m.UnderWay), func(o order.OfHost) bool {
		if o.Order.ID == id {
			m.Ended = append(m.Ended, o)
		}
		return o.Order.ID == id
	})
	return m
}

// WarnAgain returns the memory with users not yet warned of findings, by their IDs.
// Users who were notified of an action are not notified again.
func (m Memory) WarnAgain(ids []string) Memory {
	if len(ids) == 0 {
		return m
	}
	m.Findings = copyOf(m.Findings)
	for _, id := range ids {
		if known, ok := m.Findings[id]; ok && known.Notified == NotifiedOfWarning {
			known.Notified = 0
			m.Findings[id] = known
		}
	}
	return m
}

// againAfter is how long a process that survived SIGTERM, or was refused, is left alone: a minute, less what its
// outcome may come after a tick, or each minute's tick would just be missed.
const againAfter = time.Minute - 500*time.Millisecond
