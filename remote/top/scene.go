package top

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"github.com/seed-3119e985/genv/remote"
	"github.com/seed-3119e985/genv/remote/live"
	"github.com/seed-3119e985/genv/snapshot"
	"github.com/seed-3119e985/genv/snapshot/gpus"
	"github.com/seed-3119e985/genv/snapshot/text"
	"github.com/seed-3119e985/genv/snapshot/text/draw"
)

type scene struct {
	*live.Index
	events  []live.FleetEvent // oldest first
	now     func() time.Time
	guarded bool     // a host's guard is worth a column
	owned   bool     // root owns a host's state
	waiting []string // who waits for what
	booked  []string // reserved now or within a day
}

func newScene(fleet *live.FleetState, events []live.FleetEvent, now func() time.Time) *scene {
	s := &scene{Index: live.NewIndex(fleet), events: events, now: now}
	for i := range fleet.Hosts {
		h := &fleet.Hosts[i]
		s.guarded, s.owned = s.guarded || h.Guard.String() != "", s.owned || h.RootOwnsState()
		for _, p := range cmp.Or(h.Waiting, new(live.Waiting)).People {
			s.waiting = append(s.waiting, fmt.Sprintf("%s for %s on %s since %s", draw.Shown(string(p.User)),
				text.Plural(p.GPUs, "GPU"), draw.Shown(string(h.Name)), short(max(time.Minute, time.Duration(p.Seconds)*time.Second))))
		}
		for _, b := range s.reservations(h) {
			s.booked = append(s.booked, draw.Shown(string(h.Name))+": "+draw.Shown(b.String()))
		}
	}
	return s
}

func (s *scene) rows(tab tabID) []tabRow {
	f := s.FleetState
	var rows []tabRow
	switch tab {
	case tabHosts:
		rows = rowsOf(f.Hosts, func(h *live.FleetHost) tabRow { return tabRow{id: rowID{host: h.Name}, host: h} })
	case tabGPUs:
		rows = make([]tabRow, 0, s.Counts.Total())
		for i := range f.Hosts {
			rows = gpuRows(rows, &f.Hosts[i])
		}
	case tabUsers:
		rows = rowsOf(f.Users, func(u *live.FleetUser) tabRow { return tabRow{id: rowID{user: u.Name}, user: u} })
	case tabFindings:
		rows = rowsOf(f.Findings, func(p *live.Finding) tabRow {
			id := rowID{finding: p.ID, host: p.Host, pid: p.PID, user: p.User}
			return tabRow{id: id, finding: p, host: s.Host(p.Host)}
		})
	case tabProcesses:
		rows = make([]tabRow, 0, s.Counts.Total()) // about as many
		for i := range f.Hosts {
			rows = processRows(rows, &f.Hosts[i])
		}
	case tabHistory:
		rows = rowsOf(s.events, func(e *live.FleetEvent) tabRow {
			return tabRow{id: rowID{event: e.Number, host: e.Host}, event: e, host: s.Host(e.Host)}
		})
		slices.Reverse(rows) // newest first
	case tabFailed:
		rows = rowsOf(f.Failed, func(f *remote.Failure) tabRow {
			name := snapshot.Hostname(f.Host)
			return tabRow{id: rowID{host: name}, failure: f, host: s.Host(name)}
		})
	}
	for i := range rows {
		rows[i].id.tab, rows[i].scene = tab, s
	}
	return rows
}

func rowsOf[T any](list []T, row func(*T) tabRow) []tabRow {
	rows := make([]tabRow, len(list))
	for i := range list {
		rows[i] = row(&list[i])
	}
	return rows
}

func gpuRows(rows []tabRow, h *live.FleetHost) []tabRow {
	list := make([]gpus.Row, len(h.GPUs))
	for i := range h.GPUs {
		g := &h.GPUs[i]
		list[i] = gpus.Row{Host: h.Name, GPU: g}
		rows = append(rows, tabRow{id: rowID{host: h.Name, uuid: g.UUID, gpu: g.Index}, host: h, gpu: &list[i]})
	}
	return rows
}

func processRows(rows []tabRow, h *live.FleetHost) []tabRow {
	known := make(map[rowID]*processUse)
	for i := range h.GPUs {
		g := &h.GPUs[i]
		for j := range g.Processes {
			p := &g.Processes[j]
			id := rowID{host: h.Name, pid: p.PID, start: p.Start}
			if use := known[id]; use != nil {
				use.gpus, use.memory = append(use.gpus, g), sum(use.memory, p.Memory)
				continue
			}
			known[id] = &processUse{Process: p, gpus: []*gpus.GPU{g}, memory: p.Memory}
			rows = append(rows, tabRow{id: id, host: h, process: known[id]})
		}
	}
	return rows
}

// sum is unknown if either is.
func sum[N int | int64](a, b *N) *N {
	if a == nil || b == nil {
		return nil
	}
	total := *a + *b
	return &total
}

type rowID struct {
	tab     tabID
	host    snapshot.Hostname
	uuid    snapshot.GPUUUID
	gpu     snapshot.DeviceIndex
	pid     snapshot.PID
	start   snapshot.StartTime
	user    snapshot.Username
	finding string
	event   uint64
}

func (id rowID) String() string {
	switch id.tab {
	case tabGPUs:
		return fmt.Sprintf("GPU %d of %s", id.gpu, draw.Shown(string(id.host)))
	case tabUsers:
		return "user " + draw.Shown(string(id.user))
	case tabFindings:
		return "the finding"
	case tabProcesses:
		return fmt.Sprintf("process %d on %s", id.pid, draw.Shown(string(id.host)))
	case tabHistory:
		return "the event"
	}
	return "host " + draw.Shown(string(id.host))
}

// tabRow has the fields of its tab. They belong to the fleet and don't change.
type tabRow struct {
	id      rowID
	scene   *scene
	host    *live.FleetHost
	gpu     *gpus.Row
	process *processUse
	user    *live.FleetUser
	finding *live.Finding
	event   *live.FleetEvent
	failure *remote.Failure
}

func (r *tabRow) now() time.Time { return r.scene.now() }

type processUse struct {
	*gpus.Process
	gpus   []*gpus.GPU
	memory *int64 // nil if unknown on any
}

func (r *tabRow) of(id *rowID) bool {
	switch {
	case id.tab == tabUsers:
		return slices.Contains(usersOf(r), id.user)
	case id.host != "" && r.id.host != id.host:
		return false
	case id.tab == tabGPUs && r.process != nil:
		return slices.ContainsFunc(r.process.gpus, func(g *gpus.GPU) bool { return g.Index == id.gpu })
	}
	return true
}

func usersOf(r *tabRow) []snapshot.Username {
	switch {
	case r.user != nil:
		return []snapshot.Username{r.user.Name}
	case r.finding != nil:
		return []snapshot.Username{r.finding.User}
	case r.process != nil:
		return []snapshot.Username{r.process.User}
	case r.event != nil:
		return []snapshot.Username{r.event.User}
	case r.gpu != nil:
		return r.gpu.Users()
	case r.host != nil:
		return r.host.Users()
	}
	return nil
}
