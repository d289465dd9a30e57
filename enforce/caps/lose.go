package caps

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/seed-3119e985/genv/enforce"
	"github.com/seed-3119e985/genv/enforce/judging"
	"github.com/seed-3119e985/genv/snapshot"
)

// lostBy are the chosen devices by the numbers of people.
func lostBy(chosen []*personDevice) map[int][]*personDevice {
	lost := make(map[int][]*personDevice)
	for _, whole := range chosen {
		for _, part := range whole.perOwner() {
			part.whole = whole
			lost[part.Owner] = append(lost[part.Owner], part)
		}
	}
	return lost
}

func (c *capOn) loseDevices(f *enforce.Finding, due bool, devices []*personDevice) {
	if f.Cap != nil {
		over := *f.Cap // own copy
		over.Why = whyOf(devices)
		f.Cap = &over
	}
	ended := make(map[*snapshot.Process]bool)
	for _, d := range devices {
		for _, eid := range d.Envs {
			if !d.whole.Stays {
				c.LoseDevice(f, due, d.Host, d.Host.Envs[eid], d.Index)
			}
		}
		for _, use := range d.Uses {
			c.endOnce(f, due, d.Host, use.Process, ended)
		}
	}
}

func (c *capOn) loseEnvs(f *enforce.Finding, due bool, envs []*judging.EnvView) {
	ended := make(map[*snapshot.Process]bool)
	for _, e := range envs {
		for _, a := range e.Attachments {
			index := a.Device.Index
			if e.ExemptUse(index) != judging.Unused || e.Host.HidesOn(e, index) {
				continue
			}
			c.LoseDevice(f, due, e.Host, e, index)
			for p := range e.On(index) {
				c.endOnce(f, due, e.Host, p, ended)
			}
		}
	}
}

func (c *capOn) endOnce(f *enforce.Finding, due bool, h *judging.HostView, p *snapshot.Process,
	ended map[*snapshot.Process]bool,
) {
	if !ended[p] {
		c.End(f, due, h, p)
	}
	ended[p] = true
}

// add adds the findings about n things that a person has to lose, and returns whether one is acted on. Things by which
// the person exceeds the cap since the same time are one finding with its own warning and due time. If people share the
// cap, n may be 0. lose adds the things to a finding.
func (c *capOn) add(u *person, f enforce.Finding, n int, lose func(f *enforce.Finding, due bool, from, to int)) bool {
	f.User, f.ID, f.HostsMissing = u.user, c.key()+"/"+string(u.user), len(c.Missing)
	if c.host != nil {
		f.Host = c.host.Name
	}
	if n == 0 && c.Together {
		c.keepNamed(f.ID)
		return false
	}
	levels := c.levels(f.ID, n)
	acted := 0
	for from, to := 0, 0; from < len(levels); from = to {
		for to < len(levels) && levels[to].Since.Equal(levels[from].Since) && levels[to].Cycles == levels[from].Cycles {
			to++
		}
		part, end := f, min(to, n)
		if part.ID = levelKey(f.ID, from); to == len(levels) {
			end = n
		}
		due := c.checkPart(u, &part)
		if lose(&part, due, from, end); due {
			acted = to
		}
		c.Add(part)
		for i := from; i < to; i++ {
			levels[i] = c.Next.Present[part.ID]
		}
	}
	c.remember(f.ID, slices.Concat(levels[acted:], levels[:acted])) // what is left has its own time
	return acted > 0
}

func (c *capOn) checkPart(u *person, f *enforce.Finding) (due bool) {
	due = c.checkCap(u, f)
	if c.Fleet.PauseCaps && f.HostsMissing > 0 && c.host == nil {
		// The user may have more there, but the cheapest to lose may be there, too.
		f.BlockedBy = fmt.Sprintf(`%d of the hosts did not answer, and the policy says "unreachable: hold"`,
			f.HostsMissing)
		due, f.Pending = false, true
	}
	if due && c.host == nil {
		due = c.confirmed(f)
	}
	return due
}

func (c *capOn) excess(where []place, used int64) *enforce.CapExcess {
	over := &enforce.CapExcess{
		ID: c.ID, Name: c.Name, Of: c.Of, Place: c.Place, Counts: c.Kind.String(), Used: used, Limit: c.limit,
		Together: c.Together, Until: c.PeriodEnd,
	}
	if c.Kind == enforce.CapHours {
		over.Used, over.Limit = c.spent, c.allowed
	}
	for _, p := range where[:min(len(where), enforce.MaxWhere)] {
		if p.gpus != nil {
			over.Where = append(over.Where, enforce.CountedGPUs{Host: p.h.Name, GPUs: p.gpus})
		}
	}
	return over
}

func whyOf(devices []*personDevice) string {
	var reasons []string
	for _, d := range devices {
		if why := d.whole.why(); !slices.Contains(reasons, why) {
			reasons = append(reasons, why)
		}
	}
	return strings.Join(reasons, "; ")
}

// judgeEnvs takes environments beyond the cap: first those without a device, then without a process, then the newest.
// The environments themselves stay: they are people's shells.
func (c *capOn) judgeEnvs() {
	envs := c.envs(c.people...)
	if int64(len(envs)) <= c.limit {
		return
	}
	f := c.finding(nil, envs, int64(len(envs)))
	left, lost := make(map[*person][]*judging.EnvView), make(map[*person][]*judging.EnvView)
	hasNone := func(u *person) bool { return len(left[u]) == 0 }
	for _, u := range c.people {
		left[u] = slices.SortedFunc(slices.Values(c.envs(u)), compareEnvs)
	}
	people := slices.DeleteFunc(slices.Clone(c.people), hasNone)
	for range int64(len(envs)) - c.limit {
		u := slices.MinFunc(people, func(a, b *person) int {
			first, other := left[a][0], left[b][0]
			return cmp.Or(cmp.Compare(first.Cost(), other.Cost()), cmp.Compare(len(left[b]), len(left[a])),
				compareEnvs(first, other))
		})
		lost[u], left[u] = append(lost[u], left[u][0]), left[u][1:]
		people = slices.DeleteFunc(people, hasNone)
	}
	for _, u := range c.people {
		c.add(u, f, len(lost[u]), func(part *enforce.Finding, due bool, from, to int) {
			c.loseEnvs(part, due, lost[u][from:to])
		})
	}
}

func compareEnvs(a, b *judging.EnvView) int {
	return cmp.Or(cmp.Compare(a.Cost(), b.Cost()), b.Began.Compare(a.Began), b.Env.Creation.Compare(a.Env.Creation),
		cmp.Compare(a.Host.Position, b.Host.Position), cmp.Compare(a.Env.EID, b.Env.EID))
}

func (c *capOn) envs(people ...*person) (list []*judging.EnvView) {
	for _, u := range people {
		for _, e := range u.envs {
			if (c.host == nil || e.Host == c.host) && c.OnHost(e.Host.Name, e.Host.Labels) {
				list = append(list, e)
			}
		}
	}
	slices.SortStableFunc(list, func(a, b *judging.EnvView) int { return cmp.Compare(a.Host.Position, b.Host.Position) })
	return list
}
