package caps

import (
	"cmp"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/seed-3119e985/genv/enforce"
	"github.com/seed-3119e985/genv/enforce/judging"
	"github.com/seed-3119e985/genv/snapshot"
	"github.com/seed-3119e985/genv/snapshot/text"
)

const forgetUnseen = 24 * time.Hour

// working is the number of working GPUs of a cap, on a host or, for nil, on all. Hosts that don't answer have their
// last number.
func (c *Counting) working(listed *policyCap, on *judging.HostView) (n int64, known bool) {
	if on != nil {
		return listed.Count(on.GpusByModel), true
	}
	if n := listed.working; n != nil {
		return *n, *n >= 0
	}
	var unseen []string
	for i := range c.Cluster {
		h := &c.Cluster[i]
		if c.ExemptHosts[i] || !listed.OnHost(h.Name, h.Labels) {
			continue
		}
		before := c.Before.Hosts[h.Name]
		switch view := c.ByName[h.Name]; {
		case view != nil:
			n += listed.Count(view.GpusByModel)
		case before.GPUs != nil:
			n += listed.Count(before.GPUs)
		case before.LostAt.IsZero() || c.Now.Sub(before.LostAt) < forgetUnseen:
			unseen = append(unseen, string(h.Name))
		}
	}
	if len(unseen) > 0 {
		c.Notes = append(c.Notes, enforce.Note{Text: "cap " + text.Shown(cmp.Or(listed.Name, listed.Place)) +
			" takes nothing before these hosts were seen once, for at most a day: " +
			strings.Join(unseen[:min(len(unseen), enforce.MaxWhere)], ", ")})
		n = -1
	}
	listed.working = &n
	return n, n >= 0
}

// withoutOutsiders marks devices as exempt that others still use: taking them frees nothing.
func (c *capOn) withoutOutsiders(devices []*personDevice, by time.Time) []*personDevice {
	insiders := make(map[snapshot.Username]bool, len(c.people))
	for _, u := range c.people {
		insiders[u.user] = true
	}
	list := make([]*personDevice, len(devices))
	for i, d := range devices {
		own := *d
		if list[i] = &own; c.usedByOthers(insiders, d.Host, d.Device, by) || c.isOwnReserved(d) {
			own.Exempt = judging.Proven
		}
	}
	return list
}

func (c *Counting) usedByOthers(people map[snapshot.Username]bool, h *judging.HostView, d *snapshot.Device,
	by time.Time,
) bool {
	return slices.ContainsFunc(d.Attachments, func(a snapshot.Attachment) bool {
		env := h.Envs[a.EID]
		return !h.DetachesBy(d.Index, a.EID, by) && (env == nil || !people[c.Policy.Account(env.Env.Username)])
	}) || slices.ContainsFunc(h.UsersOf(d.Index), func(p *snapshot.Process) bool {
		return !h.EndsBy(p, by) && !people[c.Policy.Account(h.UserOf(p))]
	})
}

// A period never goes back with the clock.
func (c *Counting) countHours(listed *policyCap) {
	hours := c.Before.Hours[listed.ID]
	if listed.Period.After(hours.Period) {
		hours = enforce.Hours{Period: listed.Period, Unread: hours.Unread}
	}
	seconds := make(map[snapshot.Username]float64, len(hours.Seconds))
	maps.Copy(seconds, hours.Seconds)
	hours.Seconds = seconds
	for _, u := range c.inOrder {
		if listed.Member(u.user) == enforce.NotMember { // possible members count
			continue
		}
		on := capOn{Counting: c, policyCap: listed, people: []*person{u}}
		for _, d := range on.devicesOf(u) {
			hours.Seconds[u.user] += c.gap(d.Host).Seconds()
		}
	}
	c.Next.Hours[listed.ID] = hours
	if own := string(enforce.RuleCaps) + "/" + listed.ID + "/"; hours.Unread {
		keepKnown(c.Next.Findings, c.Before.Findings, own)
		keepKnown(c.Next.Present, c.Before.Present, own)
	}
}

// keepKnown keeps the memory of a cap with unknown hours: no warning begins again.
func keepKnown[V any](next, before map[string]V, own string) {
	for key, value := range before {
		if strings.HasPrefix(key+"/", own) {
			next[key] = value
		}
	}
}

// gap is the time since the last look at a host; 0 for an old snapshot, or if too long to know what happened.
func (c *Counting) gap(h *judging.HostView) time.Duration {
	last := h.LastLook
	if d := h.At.Sub(last); h.IsNew && !last.IsZero() && d > 0 && d <= 3*c.Fleet.Interval {
		return d
	}
	return 0
}

func (c *Counting) spent(listed *policyCap, people []*person) int64 {
	all, seconds := c.Next.Hours[listed.ID].Seconds, 0.0
	if !listed.Together {
		return int64(all[people[0].user])
	}
	for _, user := range slices.Sorted(maps.Keys(all)) { // including those who have nothing now
		if listed.Member(user) == enforce.Member {
			seconds += all[user]
		}
	}
	return int64(seconds)
}
