package caps

import (
	"slices"
	"strings"
	"time"

	"github.com/seed-3119e985/genv/enforce"
	"github.com/seed-3119e985/genv/enforce/judging"
	"github.com/seed-3119e985/genv/snapshot"
	"github.com/seed-3119e985/genv/snapshot/text"
)

// forgetUnseen is after what time a cap goes on without hosts that were never seen.
const forgetUnseen = 24 * time.Hour

// base is how many GPUs work of those that a cap is about; known is false while it waits for hosts.
type base struct {
	working int64
	known   bool
}

// working is the base of a cap on a host or, without one, on all: hosts that don't answer have what they showed last.
func (c *counting) working(listed *enforce.Cap, on *judging.HostView) (n int64, known bool) {
	if on != nil {
		return listed.Count(on.GpusByModel), true
	}
	if b, counted := c.bases[listed]; counted {
		return b.working, b.known
	}
	var unseen []string
	for i := range c.Cluster {
		h := &c.Cluster[i]
		if _, exempt := c.Policy.Exempt(enforce.Subject{Host: h.Name}); exempt || !listed.OnHost(h.Name, h.Labels) {
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
		name := "the cap at " + listed.Place
		if listed.Name != "" {
			name = "cap " + text.Shown(listed.Name)
		}
		name += " takes nothing before these hosts were seen once, for at most a day: "
		c.Notes = append(c.Notes, enforce.Note{Text: name +
			strings.Join(unseen[:min(len(unseen), enforce.MaxWhere)], ", ")})
	}
	c.bases[listed] = base{n, len(unseen) == 0}
	return n, len(unseen) == 0
}

// withoutOutsiders are devices of which none is chosen that somebody else uses or has, too: taking it would free
// nothing.
func (c *capOn) withoutOutsiders(devices []*HeldDevice) []*HeldDevice {
	whose := make(map[snapshot.Username]bool, len(c.people))
	for _, u := range c.people {
		whose[u.user] = true
	}
	list := make([]*HeldDevice, len(devices))
	for i, d := range devices {
		own := *d
		if list[i] = &own; c.outsiderOn(d, whose) || c.isSparedOn(d) {
			own.Exempt = judging.Proven
		}
	}
	return list
}

func (c *capOn) outsiderOn(d *HeldDevice, whose map[snapshot.Username]bool) bool {
	h := d.Host
	h.FindUsers()
	return slices.ContainsFunc(d.Attachments, func(a snapshot.Attachment) bool {
		env := h.Envs[a.EID]
		return env == nil || !whose[c.Policy.Account(env.Env.Username)]
	}) || slices.ContainsFunc(h.Users[d.Index], func(p *snapshot.Process) bool {
		return !whose[c.Policy.Account(h.UserOf(p))]
	})
}
