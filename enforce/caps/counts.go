package caps

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/seed-3119e985/genv/enforce"
	"github.com/seed-3119e985/genv/enforce/judging"
	"github.com/seed-3119e985/genv/snapshot"
	"github.com/seed-3119e985/genv/snapshot/text"
)

// counts is an enforce.Counts. Each thing is counted once, when it is asked for.
type counts struct {
	*counting
	counted map[countKey]*counted
	gpus    map[gpusKey][]snapshot.DeviceIndex
}

// countKey names what a cap counts: for a person or, without one, for those who share it.
type countKey struct {
	cap  *enforce.Cap // of the list, or nil
	rule enforce.Rule
	host *judging.HostView // nil for all
	user *held
}

type counted struct {
	on     capOn
	excess enforce.CapExcess
	places []place // by host, in the order of the cluster
	total  int64
	at     map[*judging.HostView]*place
	most   []*place // those with most of it
	oldest []*place // those that were looked at first
}

// gpusKey names the GPUs of a host that a cap is about, or all.
type gpusKey struct {
	cap  *enforce.Cap
	host *judging.HostView
}

// place is what counts on a host.
type place struct {
	h      *judging.HostView
	amount int64
	gpus   []snapshot.DeviceIndex
}

const maxCountHosts = 8

// On are the caps that hold now for a person, as seen from a host that answered.
func (n *counts) On(host snapshot.Hostname, user snapshot.Username) (list []enforce.CapCount) {
	for _, c := range n.about(host, user) {
		count := c.from(n.ByName[host])
		count.GPUs = n.gpusOf(n.ByName[host], &c.on)
		list = append(list, count)
	}
	return list
}

// Explain says of each of these what counts, and what would go first, a line each.
func (n *counts) Explain(host snapshot.Hostname, user snapshot.Username) (lines []string) {
	for _, c := range n.about(host, user) {
		name := string(c.on.rule)
		if c.on.rule == enforce.RuleCaps {
			name = "cap " + c.on.ID
		}
		line := fmt.Sprintf("%s: %s of %s", name, c.excess.Amount(c.excess.Used), c.excess.Amount(c.excess.Limit))
		for _, p := range c.places {
			line += fmt.Sprintf("; %s on %s", c.excess.Amount(p.amount), text.OneLine(string(p.h.Name)))
			if p.gpus != nil {
				line += " (GPU " + text.JoinIndices(p.gpus) + ")"
			}
		}
		lines = append(lines, line+c.on.firstToGo())
	}
	return lines
}

// firstToGo is which GPU would go first, and why; empty for none.
func (c *capOn) firstToGo() string {
	if c.Kind == enforce.CapEnvironments {
		return ""
	}
	choice := Choice{Excess: 1, Weight: func(*HeldDevice) int64 { return 1 }, MayKeep: -1}
	devices := c.devices()
	if c.leavesSome || c.Waiting != nil {
		devices = c.withoutOutsiders(devices)
	}
	counted, _ := c.count(devices, time.Time{})
	for _, d := range choice.Devices(counted) {
		return fmt.Sprintf("; first would go GPU %s on %s (%s)", d.Index, text.OneLine(string(d.Host.Name)), d.Why())
	}
	return ""
}

// about is what is counted for a person on a host.
func (n *counts) about(host snapshot.Hostname, user snapshot.Username) (list []*counted) {
	if n.ByName[host] == nil {
		return nil
	}
	h, u := n.ByName[host], n.of(user)
	if u.settings == nil {
		return nil
	}
	for own := range n.ownCaps(u) {
		own.about, own.known = true, true
		list = append(list, n.count(countKey{rule: own.rule, user: u}, func() capOn { return *own }))
	}
	for _, listed := range n.list {
		if listed.Resting || listed.Member(u.user) != enforce.Member ||
			listed.PerHost && !listed.OnHost(h.Name, h.Labels) {
			continue
		}
		key := countKey{cap: listed, user: u}
		if listed.PerHost {
			key.host = h
		}
		if listed.Together {
			key.user = nil
		}
		c := n.count(key, func() capOn { return n.on(listed, key.host, n.sharing(listed, u)) })
		if c.on.about && c.on.known {
			list = append(list, c)
		}
	}
	return list
}

// sharing are the people for whom a cap counts together with a person.
func (n *counts) sharing(listed *enforce.Cap, u *held) []*held {
	if people := n.members(listed); listed.Together && len(people) > 0 {
		return people
	}
	return []*held{u} // alone, or there is nothing that counts
}

// count counts once.
func (n *counts) count(key countKey, find func() capOn) *counted {
	if known := n.counted[key]; known != nil {
		return known
	}
	result := &counted{on: find()}
	if on := &result.on; on.about && on.known {
		var used int64
		used, result.places = on.places()
		result.excess = *on.excess(nil, used)
		result.index()
	}
	if n.counted == nil {
		n.counted, n.gpus = make(map[countKey]*counted), make(map[gpusKey][]snapshot.DeviceIndex)
	}
	n.counted[key] = result
	return result
}

// index prepares for the hosts that ask.
func (n *counted) index() {
	n.at = make(map[*judging.HostView]*place, len(n.places))
	for i := range n.places {
		p := &n.places[i]
		n.at[p.h], n.most, n.total = p, append(n.most, p), n.total+p.amount
	}
	n.oldest = slices.Clone(n.most)
	slices.SortStableFunc(n.oldest, func(a, b *place) int { return a.h.At.Compare(b.h.At) })
	slices.SortStableFunc(n.most, func(a, b *place) int { return cmp.Compare(b.amount, a.amount) })
	n.oldest, n.most = n.oldest[:min(len(n.oldest), 2)], n.most[:min(len(n.most), maxCountHosts+1)]
}

// gpusOf are the GPUs of a host that a cap is about.
func (n *counts) gpusOf(h *judging.HostView, c *capOn) []snapshot.DeviceIndex {
	key := gpusKey{c.Cap, h}
	if c.OnHost == nil {
		key.cap = nil
	}
	list, known := n.gpus[key]
	if !known && c.Kind != enforce.CapEnvironments {
		for _, index := range slices.Sorted(maps.Keys(h.Devices)) {
			if c.OnHost == nil || c.OnHost(h.Name, h.Labels) && c.IsAboutModel(enforce.ModelOf(h.Devices[index])) {
				list = append(list, index)
			}
		}
		n.gpus[key] = list
	}
	return list
}

// places is how much counts, and on which hosts.
func (c *capOn) places() (used int64, list []place) {
	at := make(map[*judging.HostView]*place)
	add := func(h *judging.HostView, amount int64) *place {
		if at[h] == nil {
			at[h] = &place{h: h}
		}
		at[h].amount += amount
		return at[h]
	}
	switch c.Kind {
	case enforce.CapHours:
		return c.spent, nil
	case enforce.CapEnvironments:
		for _, e := range c.envs() {
			add(e.h, 1)
			used++
		}
	case enforce.CapGPUs, enforce.CapMemory:
		var devices []*HeldDevice
		devices, used = c.count(c.devices(), time.Time{})
		for _, d := range devices {
			amount := int64(1)
			if c.Kind == enforce.CapMemory {
				amount = max(0, d.Memory())
			}
			on := add(d.Host, amount)
			on.gpus = append(on.gpus, d.Index)
		}
	}
	for _, p := range at {
		list = append(list, *p)
	}
	slices.SortFunc(list, func(a, b place) int { return cmp.Compare(a.h.Position, b.h.Position) })
	return used, list
}

// from is what was counted as seen from a host.
func (n *counted) from(h *judging.HostView) enforce.CapCount {
	c := &n.on
	count := enforce.CapCount{CapExcess: n.excess, Model: c.Model, PerHost: c.PerHost, While: c.Waiting != nil}
	if c.rule != enforce.RuleCaps {
		count.Rule = c.rule
	}
	count.Elsewhere = n.total
	if here := n.at[h]; here != nil {
		count.Here, count.HereGPUs, count.Elsewhere = here.amount, here.gpus, n.total-here.amount
	}
	for _, p := range n.oldest {
		if p.h != h && count.Seen.IsZero() {
			count.Seen = p.h.At
		}
	}
	for _, p := range n.most {
		if p.h != h && len(count.Hosts) < maxCountHosts {
			count.Hosts = append(count.Hosts, p.h.Name)
		}
	}
	return count
}

// conclude adds to the judgement what was found beside the findings.
func (c *counting) conclude() {
	c.Counts = &counts{counting: c}
	for _, n := range c.forWaits {
		w := enforce.ForWait{Host: n.h.Name, ID: n.ID, Possible: n.possible}
		if n.gets() {
			w.GPUs, w.Possible = n.free, 0
		}
		c.ForWaits = append(c.ForWaits, w)
	}
}
