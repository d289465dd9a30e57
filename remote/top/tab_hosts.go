package top

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/seed-3119e985/genv/remote/live"
	"github.com/seed-3119e985/genv/snapshot"
	"github.com/seed-3119e985/genv/snapshot/gpus"
	"github.com/seed-3119e985/genv/snapshot/text"
	"github.com/seed-3119e985/genv/snapshot/text/draw"
)

func hostColumns() []column {
	return []column{
		hostColumn(),
		worded(flexible("MODEL", 7, 4), func(r *tabRow) string { return modelsOf(r.host) }),
		{flexible("GPUS", 8, 0), gpuCells, nil},
		{right("FREE", 5, 0), freeCell, by(func(r *tabRow) int { return free(r.host) })},
		{right("MEM GIB", 7, 6), memoryCell, known(usedMemory)},
		{right("UTIL", 4, 7), utilizationCell, known(utilization)},
		{flexible("USERS", 6, 5), words(joinUsers), by(func(r *tabRow) int { return len(usersOf(r)) })},
		{right("FINDINGS", 8, 8), findingsCell, by(findingsOn)},
		{right("AGE", 5, 9), ageCell, by(age)},
	}
}

func age(r *tabRow) int64 { return -seen(r.host).UnixNano() }

func seen(h *live.FleetHost) time.Time {
	if h == nil {
		return time.Time{}
	}
	return h.Seen
}

func modelsOf(h *live.FleetHost) string {
	var models []string
	for i := range h.GPUs {
		if m := gpus.ShortModel(h.GPUs[i].Model); m != "" && !slices.Contains(models, m) {
			models = append(models, m)
		}
	}
	return strings.Join(models, ", ")
}

func gpuCells(r *tabRow) draw.Cell {
	if len(r.host.GPUs) == 0 && r.host.Failure != nil {
		return draw.Styled("failed", draw.Red)
	}
	cells := make(draw.Cell, len(r.host.GPUs))
	for i := range r.host.GPUs {
		cells[i] = r.scene.mark(r.host, &r.host.GPUs[i])
	}
	return cells
}

func (s *scene) mark(h *live.FleetHost, g *gpus.GPU) draw.Span {
	mark, as := s.Mark(h.Name, g), stateStyle(g.State)
	switch mark {
	case live.MarkFinding:
		as = draw.Red
	case live.MarkExempt:
		as = draw.Magenta
	}
	return draw.Span{Text: string(rune(mark)), Style: as}
}

func stateStyle(state gpus.State) draw.Style {
	switch state {
	case gpus.Free, gpus.MIG:
		return draw.Green
	case gpus.Busy:
		return draw.Cyan
	case gpus.Attached, gpus.Idle:
		return draw.Yellow
	case gpus.Failed, gpus.Unusable:
		return draw.Red
	}
	return draw.Faint
}

func free(h *live.FleetHost) int {
	var counts gpus.StateCounts
	counts.Add(h.GPUs...)
	return counts.Free
}

func freeCell(r *tabRow) draw.Cell {
	n, as := free(r.host), draw.Plain
	if n > 0 {
		as = draw.Green
	}
	if r.host.Failure != nil {
		return draw.Text("-")
	}
	return draw.Styled(fmt.Sprintf("%d/%d", n, len(r.host.GPUs)), as)
}

func gpusOf(r *tabRow) []*gpus.GPU {
	switch {
	case r.gpu != nil:
		return []*gpus.GPU{r.gpu.GPU}
	case r.process != nil:
		return r.process.gpus
	case r.host != nil:
		list := make([]*gpus.GPU, len(r.host.GPUs))
		for i := range r.host.GPUs {
			list[i] = &r.host.GPUs[i]
		}
		return list
	}
	return nil
}

func usedMemory(r *tabRow) *int64 {
	return total(gpusOf(r), func(g *gpus.GPU) *int64 { return g.MemoryUsed })
}

func total[N int | int64](list []*gpus.GPU, amount func(*gpus.GPU) *N) (all *N) {
	for i, g := range list {
		if all = sum(all, amount(g)); i == 0 {
			all = amount(g)
		}
	}
	return all
}

func memoryCell(r *tabRow) draw.Cell {
	size := total(gpusOf(r), func(g *gpus.GPU) *int64 { return g.MemoryTotal })
	return draw.Text(text.UsedGiB(usedMemory(r), size))
}

func utilization(r *tabRow) *int {
	all := total(gpusOf(r), func(g *gpus.GPU) *int { return g.Utilization })
	if all != nil {
		*all /= len(r.host.GPUs)
	}
	return all
}

func joinUsers(r *tabRow) string {
	var names []string
	for _, u := range usersOf(r) {
		names = append(names, draw.Shown(string(u)))
	}
	return strings.Join(names, " ")
}

func findingsOn(r *tabRow) int { return len(r.scene.FindingsOn(r.id.host)) }

func findingsCell(r *tabRow) draw.Cell {
	n := findingsOn(r)
	switch {
	case n > 0:
		return draw.Styled(strconv.Itoa(n), draw.Red)
	case !r.scene.Enforcing, r.host.Failure != nil:
		return draw.Text("-")
	}
	return draw.Text("0")
}

func ageCell(r *tabRow) draw.Cell {
	at := seen(r.host)
	if at.IsZero() {
		return draw.Styled("never", draw.Red)
	}
	age := r.now().Sub(at)
	if r.host.Failure != nil || age > r.scene.patience() {
		return draw.Styled("!"+short(age), draw.Red)
	}
	return draw.Text(short(age))
}

func (s *scene) patience() time.Duration {
	return time.Duration((2*s.Interval + s.Took + 5) * float64(time.Second))
}

// short formats a duration in one unit: 5s, 12m, 3h, 9d.
func short(d time.Duration) string {
	unit := time.Second
	switch {
	case d >= 48*time.Hour:
		unit = 24 * time.Hour
	case d >= time.Hour:
		unit = time.Hour
	case d >= time.Minute:
		unit = time.Minute
	}
	return text.FormatDuration(max(d, 0).Truncate(unit))
}

// rareColumns are only shown if they have content. s may be nil.
func (s *scene) rareColumns() (list []column) {
	if s == nil {
		return nil
	}
	for _, c := range []struct {
		there bool
		column
	}{
		{s.waiting != nil, column{right("WAIT", 4, 4), waitCell, by(waitedFor)}},
		{s.booked != nil, worded(left("RESERVED", 11, 4), reserved)},
		{s.guarded, column{left("GUARD", 7, 5), guardCell, by(guardMode)}},
		{s.owned, worded(left("SERVICE", 7, 4), serviceState)},
	} {
		if c.there {
			list = append(list, c.column)
		}
	}
	return list
}

func waitedFor(r *tabRow) int { return cmp.Or(r.host.Waiting, new(live.Waiting)).GPUs }

func waitCell(r *tabRow) draw.Cell {
	if r.host.Waiting == nil {
		return draw.Styled("?", draw.Faint)
	}
	return draw.Styled(strconv.Itoa(waitedFor(r)), map[bool]draw.Style{true: draw.Yellow}[waitedFor(r) > 0])
}

func reserved(r *tabRow) string {
	if n := *cmp.Or(r.host.Reserved, new(int)); n > 0 {
		return fmt.Sprintf("%d now", n)
	}
	for _, b := range r.scene.reservations(r.host) {
		return fmt.Sprintf("%d at %s", b.GPUs, b.From.In(r.now().Location()).Format("15:04"))
	}
	return ""
}

func (s *scene) reservations(h *live.FleetHost) []live.Reservation {
	soon := func(b live.Reservation) bool {
		return b.From.Before(s.now().Add(24*time.Hour)) && b.Until.After(s.now())
	}
	return slices.DeleteFunc(slices.Clone(h.Reservations), func(b live.Reservation) bool { return !soon(b) })
}

func guardMode(r *tabRow) string {
	if r.host.Failure != nil {
		return "-"
	}
	return cmp.Or(string(r.host.Guard.Mode), "?")
}

func guardCell(r *tabRow) draw.Cell {
	mode := guardMode(r)
	switch {
	case r.host.Guard.Differs():
		return draw.Styled("!"+mode, draw.Red)
	case r.host.Guard.Mode == snapshot.GuardEnforce, r.host.Guard.Mode == snapshot.GuardWatch:
		return draw.Styled(mode, draw.Green)
	}
	return draw.Text(mode)
}

func serviceState(r *tabRow) string {
	if r.host.Failure != nil {
		return "-"
	}
	return r.host.ServiceState()
}
