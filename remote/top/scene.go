package top

import (
	"slices"

	"github.com/seed-3119e985/genv/remote"
	"github.com/seed-3119e985/genv/remote/live"
	"github.com/seed-3119e985/genv/snapshot"
	"github.com/seed-3119e985/genv/snapshot/gpus"
)

// maxEvents is how many events are kept for the history.
const maxEvents = 4096

// scene is a fleet with what is looked up in it, once for each update.
type scene struct {
	fleet    *live.Fleet
	events   []live.Event // the oldest first
	hosts    map[snapshot.Hostname]*live.Host
	findings map[snapshot.Hostname][]*live.Finding // those of a host
	marks    *live.Marks                           // of the GPUs
	states   map[gpus.State]int
	gpus     int // all of them
}

func newScene(fleet *live.Fleet, events []live.Event) *scene {
	s := &scene{
		fleet: fleet, events: events, hosts: make(map[snapshot.Hostname]*live.Host, len(fleet.Hosts)),
		findings: make(map[snapshot.Hostname][]*live.Finding), marks: fleet.Marks(), states: make(map[gpus.State]int),
	}
	for i := range fleet.Hosts {
		h := &fleet.Hosts[i]
		s.hosts[h.Name], s.gpus = h, s.gpus+len(h.GPUs)
		for j := range h.GPUs {
			s.states[h.GPUs[j].State]++
		}
	}
	for i := range fleet.Findings {
		f := &fleet.Findings[i]
		if f.Host != "" {
			s.findings[f.Host] = append(s.findings[f.Host], f)
		}
	}
	return s
}

// withEvents adds new events to those that are kept.
func withEvents(kept, more []live.Event) []live.Event {
	kept = append(slices.Clip(kept), more...)
	if excess := len(kept) - maxEvents; excess > 0 {
		kept = kept[excess:]
	}
	return kept
}

// rows lists the rows of a tab, in the order of the fleet.
func (s *scene) rows(tab tabID) []row {
	f := s.fleet
	var rows []row
	switch tab {
	case tabHosts:
		rows = make([]row, len(f.Hosts))
		for i := range f.Hosts {
			rows[i] = row{id: identity{host: f.Hosts[i].Name}, host: &f.Hosts[i]}
		}
	case tabGPUs:
		rows = make([]row, 0, s.gpus)
		for i := range f.Hosts {
			rows = gpuRows(rows, &f.Hosts[i])
		}
	case tabUsers:
		for i := range f.Users {
			rows = append(rows, row{id: identity{user: f.Users[i].Name}, user: &f.Users[i]})
		}
	case tabFindings:
		for i := range f.Findings {
			p := &f.Findings[i]
			rows = append(rows, row{id: identity{finding: p.ID, host: p.Host, pid: p.PID, user: p.User}, finding: p, host: s.hosts[p.Host]})
		}
	case tabProcesses:
		rows = make([]row, 0, s.gpus) // about as many
		for i := range f.Hosts {
			rows = processRows(rows, &f.Hosts[i])
		}
	case tabHistory:
		for i := len(s.events) - 1; i >= 0; i-- { // the last one first
			e := &s.events[i]
			rows = append(rows, row{id: identity{event: e.Number, host: e.Host}, event: e, host: s.hosts[e.Host]})
		}
	case tabFailed:
		for i := range f.Failed {
			name := snapshot.Hostname(f.Failed[i].Host)
			rows = append(rows, row{id: identity{host: name}, failure: &f.Failed[i], host: s.hosts[name]})
		}
	}
	for i := range rows {
		rows[i].id.tab = tab
	}
	return rows
}

func gpuRows(rows []row, h *live.Host) []row {
	for i := range h.GPUs {
		g := &h.GPUs[i]
		rows = append(rows, row{id: identity{host: h.Name, uuid: g.UUID, gpu: g.Index}, host: h, gpu: g})
	}
	return rows
}

// processRows has a row for each process, also if it uses several GPUs.
func processRows(rows []row, h *live.Host) []row {
	first := len(rows)
	for i := range h.GPUs {
		g := &h.GPUs[i]
		for j := range g.Processes {
			p := &g.Processes[j]
			id := identity{host: h.Name, pid: p.PID, start: p.Start}
			at := slices.IndexFunc(rows[first:], func(r row) bool { return r.id == id })
			if at < 0 {
				rows = append(rows, row{id: id, host: h, process: &process{Process: p, gpus: []*gpus.GPU{g}, memory: p.Memory}})
				continue
			}
			use := rows[first+at].process
			use.gpus, use.memory = append(use.gpus, g), sum(use.memory, p.Memory)
		}
	}
	return rows
}

// sum is unknown if one of the two is.
func sum(a, b *int64) *int64 {
	if a == nil || b == nil {
		return nil
	}
	total := *a + *b
	return &total
}

// failureOf is why a host didn't answer; nil if it did.
func failureOf(h *live.Host) *remote.Failure {
	if h == nil {
		return nil
	}
	return h.Failure
}
