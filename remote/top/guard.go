package top

import (
	"time"

	"github.com/seed-3119e985/genv/remote/live"
	"github.com/seed-3119e985/genv/snapshot"
	"github.com/seed-3119e985/genv/snapshot/text/draw"
)

// guardColumns are about the hosts' kernel guards, and whether root owns their state: none
// for a fleet without them.
func (s *scene) guardColumns() (list []column) {
	if s == nil {
		return nil
	}
	if s.guarded {
		list = append(list, column{left("GUARD", 7, 5), guardCell, by(func(r *row) string { return guardMode(r.host) })})
	}
	if s.owned {
		list = append(list, worded(left("SERVICE", 7, 4), serviceState))
	}
	return list
}

func guardMode(h *live.Host) string {
	switch {
	case h.Failure != nil:
		return "-"
	case h.Guard.Mode == "":
		return "?"
	}
	return string(h.Guard.Mode)
}

func guardCell(_ *scene, r *row, _ time.Time) draw.Cell {
	mode := guardMode(r.host)
	switch {
	case r.host.Guard.Differs():
		return draw.Styled("!"+mode, draw.Red)
	case r.host.Guard.Mode == snapshot.GuardEnforce, r.host.Guard.Mode == snapshot.GuardWatch:
		return draw.Styled(mode, draw.Green)
	}
	return draw.Text(mode)
}

func serviceState(r *row) string {
	if r.host.Failure != nil {
		return "-"
	}
	return r.host.ServiceState()
}

// guardOf is what a row of the hosts has to say about a guard, for filters.
func guardOf(r *row) []filterValue {
	if r.host == nil || r.host.Guard.String() == "" {
		return nil
	}
	if r.host.Guard.Mode == "" {
		return texts("unknown")
	}
	return texts(r.host.Guard.Mode)
}

// guardAlert says why the guard of the host that a tab is narrowed to doesn't do what it
// should; empty if it does.
func (m *Model) guardAlert() string {
	if m.scene == nil || m.scope.host == "" {
		return ""
	}
	h := m.scene.hosts[m.scope.host]
	if h == nil || !h.Guard.Differs() {
		return ""
	}
	return "Kernel guard of " + draw.Shown(string(h.Name)) + ": " + draw.Shown(h.Guard.String())
}
