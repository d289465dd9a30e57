package top

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"slices"
	"time"

	"github.com/seed-3119e985/genv/remote"
	"github.com/seed-3119e985/genv/remote/live"
	"github.com/seed-3119e985/genv/snapshot"
	"github.com/seed-3119e985/genv/snapshot/gpus"
	"github.com/seed-3119e985/genv/snapshot/text"
	"github.com/seed-3119e985/genv/snapshot/text/draw"
)

// Plain prints a line per host, and again when it changes, until ctx ends or after this many cycles (0: unlimited). It
// returns the last fleet.
func Plain(ctx context.Context, w io.Writer, options Options, cycles int) (*live.FleetState, error) {
	p := plainWriter{out: w, options: options, shown: make(map[snapshot.Hostname]string)}
	for number := 0; ctx.Err() == nil; {
		update, err := options.Next(ctx)
		switch {
		case ctx.Err() != nil:
		case err != nil && cycles > 0 && p.fleet == nil:
			return nil, err
		case err != nil:
			p.lost(err)
		case update.Fleet.Cycle > 0: // otherwise no host has been asked yet
			if p.fleet == nil || p.fleet.Run != update.Fleet.Run || p.fleet.Cycle != update.Fleet.Cycle {
				number++
			}
			p.write(update.Fleet)
		}
		if p.broken != nil || cycles > 0 && number >= cycles {
			break
		}
	}
	return p.fleet, p.broken
}

type plainWriter struct {
	out     io.Writer
	options Options
	fleet   *live.FleetState
	shown   map[snapshot.Hostname]string // last line of each host
	failure string                       // why there is nothing new
	alerts  []string                     // last ones about the controller
	broken  error                        // of out
}

func (p *plainWriter) print(line string) {
	if p.broken == nil {
		_, p.broken = fmt.Fprintln(p.out, p.options.Now().Format(time.RFC3339), line)
	}
}

func (p *plainWriter) lost(err error) {
	if err.Error() == p.failure {
		return
	}
	p.failure = err.Error()
	line := "no new data: " + draw.Shown(p.failure)
	if p.fleet != nil {
		line += fmt.Sprintf("; the last data are %s old", short(p.options.Now().Sub(p.fleet.Time)))
	}
	p.print(line)
}

func (p *plainWriter) write(fleet *live.FleetState) {
	if p.failure != "" {
		p.print("new data again")
		p.failure = ""
	}
	p.fleet = fleet
	p.alert(alertsOf(fleet))
	s := newScene(fleet, nil, p.options.Now)
	there := make(map[snapshot.Hostname]bool)
	var changed []*live.FleetHost
	var failed []remote.Failure
	for _, r := range p.options.only(s.rows(tabHosts)) {
		if !p.options.Filter.matches(&r) {
			continue
		}
		there[r.id.host] = true
		line := sentence(&r)
		if line == p.shown[r.id.host] {
			continue
		}
		p.shown[r.id.host] = line
		changed = append(changed, r.host)
		if r.host.Failure != nil {
			failed = append(failed, *r.host.Failure)
		}
	}
	alike := p.failures(failed, len(there))
	for _, h := range changed {
		if !alike[string(h.Name)] {
			p.print(p.shown[h.Name] + p.age(h))
		}
	}
	for name := range p.shown {
		if !there[name] {
			delete(p.shown, name)
			p.print(draw.Shown(string(name)) + ": not shown any more")
		}
	}
}

func (p *plainWriter) alert(now []string) {
	for _, line := range now {
		if !slices.Contains(p.alerts, line) {
			p.print(line)
		}
	}
	for _, line := range p.alerts {
		if !slices.Contains(now, line) {
			p.print("over: " + line)
		}
	}
	p.alerts = now
}

// failures prints hosts with the same failure on one line.
func (p *plainWriter) failures(failed []remote.Failure, total int) (alike map[string]bool) {
	if p.options.Failures != nil {
		p.options.Failures(failed, total)
	}
	alike = make(map[string]bool)
	for _, c := range remote.Causes(failed) {
		if len(c.Hosts) == 1 {
			continue
		}
		p.print(fmt.Sprintf("%s: failed (%s): %s (%d hosts)", text.ShortHosts(c.Hosts, maxHosts), c.Class,
			draw.Shown(c.Error), len(c.Hosts)))
		for _, host := range c.Hosts {
			alike[host] = true
		}
	}
	return alike
}

const maxHosts = 160 // approximate characters of host names per line

func (p *plainWriter) age(h *live.FleetHost) string {
	switch {
	case h.Seen.IsZero():
		return "; it has never answered"
	case h.Failure != nil:
		return fmt.Sprintf("; it answered %s ago", short(p.options.Now().Sub(h.Seen)))
	}
	return ""
}

func sentence(r *tabRow) string {
	h := r.host
	name := draw.Shown(string(h.Name))
	if h.Failure != nil {
		return fmt.Sprintf("%s: failed (%s): %s", name, h.Failure.Class, draw.Shown(h.Failure.Error))
	}
	var counts gpus.StateCounts
	counts.Add(h.GPUs...)
	line := fmt.Sprintf("%s: %d of %d GPUs free", name, counts.Free, len(h.GPUs))
	for _, state := range gpus.States()[1:] {
		if n := counts.In(state); n > 0 {
			line += fmt.Sprintf(", %d %s", n, state)
		}
	}
	line += fmt.Sprintf("; memory %s GiB; utilization %s", memoryCell(r).Plain(), utilizationCell(r).Plain())
	if users := joinUsers(r); users != "" {
		line += "; users " + users
	}
	if guard := h.Guard.String(); guard != "" {
		line += "; kernel guard " + draw.Shown(guard)
	}
	if h.RootOwnsState() {
		line += "; root owns the state files"
	}
	for _, p := range cmp.Or(h.Waiting, new(live.Waiting)).People { // a start time would print a new line every minute
		line += fmt.Sprintf("; %s waits for %s", draw.Shown(string(p.User)), text.Plural(p.GPUs, "GPU"))
	}
	for _, b := range r.scene.reservations(h) {
		line += "; " + draw.Shown(b.String())
	}
	before := "; findings: "
	for _, f := range r.scene.FindingsOn(h.Name) {
		line += before + draw.Shown(f.Line)
		before = "; "
	}
	return line
}
