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

// countKey names a count of a cap: of a person or, for nil, of those who share it.
type countKey struct {
	cap  *policyCap
	host *judging.HostView // nil for all hosts
	user *person
}

// counted is the count of a cap, made on demand.
type counted struct {
	on     *capOn
	excess enforce.CapExcess
	at     map[*judging.HostView]*place
	places []place // likewise, in the order of the cluster
	total  int64
	most   []place // the largest places
	oldest []place // the places with the oldest snapshots
}

const maxCountHosts = 8

// On implements enforce.Counts.
func (c *Counting) On(host snapshot.Hostname, user snapshot.Username) (list []enforce.CapCount) {
	h := c.ByName[host]
	for _, n := range c.countedFor(h, user) {
		list = append(list, n.from(h))
	}
	return list
}

// Explain implements enforce.Counts.
func (c *Counting) Explain(host snapshot.Hostname, user snapshot.Username) (lines []string) {
	for _, n := range c.countedFor(c.ByName[host], user) {
		name := cmp.Or(string(n.on.Rule), "cap "+n.on.ID)
		line := fmt.Sprintf("%s: %s of %s", name, n.excess.Amount(n.excess.Used), n.excess.Amount(n.excess.Limit))
		for _, p := range n.places {
			line += fmt.Sprintf("; %s on %s", n.excess.Amount(p.amount), text.OneLine(string(p.h.Name)))
			if p.gpus != nil {
				line += " (GPU " + text.JoinIndices(p.gpus) + ")"
			}
		}
		lines = append(lines, line+n.on.firstToGo())
	}
	return lines
}

func (c *capOn) firstToGo() string {
	if c.Kind == enforce.CapEnvironments {
		return ""
	}
	devices := c.devices()
	if c.forOthers || c.Waiting != nil {
		devices = c.withoutOutsiders(devices, time.Time{})
	}
	counted, _ := c.count(devices, time.Time{})
	for _, d := range (&choice{excess: 1}).devices(counted) {
		return fmt.Sprintf("; first would go GPU %s on %s (%s)", d.Index, text.OneLine(string(d.Host.Name)), d.why())
	}
	return ""
}

func (c *Counting) countedFor(h *judging.HostView, user snapshot.Username) (list []*counted) {
	if h == nil {
		return nil
	}
	u := c.of(c.Policy.Account(user))
	if u.settings == nil {
		return nil
	}
	for _, listed := range c.caps {
		if listed.Inactive || listed.Member(u.user) != enforce.Member ||
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
		if n := c.countOnce(key, u); n.on != nil && n.on.known {
			list = append(list, n)
		}
	}
	return list
}

func (c *Counting) countOnce(key countKey, u *person) *counted {
	if known := c.counted[key]; known != nil {
		return known
	}
	people := []*person{u} // alone, or nothing counts
	if all := key.cap.members(c.inOrder); key.cap.Together && len(all) > 0 {
		people = all
	}
	n := &counted{on: c.on(key.cap, key.host, people)}
	if n.on != nil && n.on.known {
		n.count()
	}
	c.counted[key] = n
	return n
}

func (n *counted) count() {
	switch n.on.Kind {
	case enforce.CapHours: // hosts may show nothing of it now
	case enforce.CapEnvironments:
		n.places = n.on.places(nil, n.on.envs(n.on.people...))
	case enforce.CapGPUs, enforce.CapMemory:
		devices, _ := n.on.count(n.on.devices(), time.Time{})
		n.places = n.on.places(devices, nil)
	}
	n.at = make(map[*judging.HostView]*place, len(n.places))
	for i := range n.places {
		p := &n.places[i]
		n.at[p.h], n.total = p, n.total+p.amount
	}
	n.excess = *n.on.excess(nil, n.total)
	n.oldest = slices.SortedStableFunc(slices.Values(n.places), func(a, b place) int { return a.h.At.Compare(b.h.At) })
	n.most = slices.SortedStableFunc(slices.Values(n.places), func(a, b place) int {
		return cmp.Compare(b.amount, a.amount)
	})
	n.oldest, n.most = n.oldest[:min(len(n.oldest), 2)], n.most[:min(len(n.most), maxCountHosts+1)]
}

// gpusOf caches its answers, since many people may ask.
func (c *policyCap) gpusOf(h *judging.HostView) []snapshot.DeviceIndex {
	list, known := c.gpus[h]
	if !known && c.Kind != enforce.CapEnvironments && c.OnHost(h.Name, h.Labels) {
		list = slices.DeleteFunc(slices.Sorted(maps.Keys(h.Devices)), func(index snapshot.DeviceIndex) bool {
			return !c.IsAboutModel(enforce.ModelOf(h.Devices[index]))
		})
		judging.Put(&c.gpus, h, list)
	}
	return list
}

func (n *counted) from(h *judging.HostView) enforce.CapCount {
	c := n.on
	count := enforce.CapCount{
		CapExcess: n.excess, Rule: c.Rule, Model: c.Model, PerHost: c.PerHost, While: c.Waiting != nil,
		GPUs: c.gpusOf(h), Elsewhere: n.total,
	}
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

func (c *Counting) conclude() {
	c.Counts = c
	for _, n := range c.waits {
		w := enforce.Offer{Host: n.h.Name, ID: n.ID, Possible: n.possible}
		if n.gets() {
			w.GPUs, w.Possible = n.free, 0
		}
		c.Offers = append(c.Offers, w)
	}
}
