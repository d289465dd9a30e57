package controllers

import (
	"fmt"
	"maps"
	"slices"

	"github.com/seed-3119e985/genv/cmd/genv/render"
	"github.com/seed-3119e985/genv/remote/agent/fence"
	"github.com/seed-3119e985/genv/snapshot/text"
)

// groups are hosts, by what is not in order there.
type groups struct {
	others    map[string][]string // by the name of another controller that acts
	unclear   []string
	unfenced  []string
	unclaimed []string // no controller acts, though one leads
	refusing  []string // another election acted last
	later     []string // with a later epoch than the leader
	idle      []string // no controller acts, and there is no election
}

// groups puts hosts into groups, and finds which of them agree.
func (d *Document) groups() *groups {
	g := &groups{others: map[string][]string{}}
	e, source := d.Election, d.source()
	for i := range d.Hosts {
		h := &d.Hosts[i]
		h.Agrees = h.State != unknown
		own := h.Source == source
		switch {
		case h.State == unknown:
			g.unclear = append(g.unclear, h.Host)
		case h.State == cannot:
			g.unfenced = append(g.unfenced, h.Host)
		case d.Etcd.failed(): // which controller should act isn't known
		case own && e.isBehind(h):
			g.later = append(g.later, h.Host)
		case h.State == acts && !own:
			h.Agrees = false
			g.others[h.Controller] = append(g.others[h.Controller], h.Host)
		case h.State == acts:
		case e == nil:
			g.idle = append(g.idle, h.Host)
		case h.Kind == fence.KindEtcd && !own:
			g.refusing = append(g.refusing, h.Host)
		case e.Leads:
			g.unclaimed = append(g.unclaimed, h.Host)
		}
	}
	return g
}

// isBehind reports whether a host knows a later epoch of an election than etcd, which was asked
// after the host.
func (e *Election) isBehind(h *Host) bool {
	return e != nil && e.Leads && h.Epoch > e.Epoch
}

// judgeHosts says what is not in order on hosts.
func (d *Document) judgeHosts(g *groups) {
	for _, name := range slices.Sorted(maps.Keys(g.others)) {
		d.judgeOther(name, render.Hosts(g.others[name]))
	}
	if len(g.idle) > 0 && len(g.idle) == len(d.Hosts) {
		d.add("no controller acts on "+render.Hosts(g.idle)+", so nothing is enforced there", "start one: `systemctl start genv-controller`, and look at `journalctl -u genv-controller`")
	}
	if len(g.later) > 0 {
		d.add("a later epoch of this election than that of the leader is known on "+render.Hosts(g.later)+", which refuses the leader: etcd was set up again as it was, or restored",
			"end all controllers of this election, give etcd another --initial-cluster-token or --leader another key, and start one controller once with --take-over")
	}
	if len(g.refusing) > 0 {
		d.add("only the leader of another election may act on "+render.Hosts(g.refusing)+": the controllers of this election are refused there", "start one controller of this election once with --take-over")
	}
	if len(g.unclear) > 0 {
		d.add(render.Hosts(g.unclear)+": genv can't read which controller may act, so none may", "look at controller.json in /var/lib/genv there: if it is damaged and one controller runs, remove it; `genv remote enforce` says why it can't be read")
	}
	if len(g.unclaimed) > 0 {
		d.add("no controller acts on "+render.Hosts(g.unclaimed)+", so nothing is enforced there", "check that hosts.yaml has these hosts on all controllers, and look at `journalctl -u genv-controller`")
	}
	if len(g.unfenced) > 0 && d.Election != nil {
		d.add("the genv of "+render.Hosts(g.unfenced)+" can't refuse a controller that was replaced", "install this genv there: `genv remote install`")
	}
}

// judgeOther says that a controller acts on hosts by another right than it should. The leader does
// if etcd was restored under it as another cluster.
func (d *Document) judgeOther(name, hosts string) {
	quoted := text.Quoted(name, maxShown)
	switch e := d.Election; {
	case e == nil:
		d.add(fmt.Sprintf("%s acts on %s, and another controller on the other hosts", quoted, hosts), "end it, or start the one that is to act once with --take-over")
	case e.leader() != nil && e.leader().Name == name:
		d.add("on "+hosts+" the leader acts with an epoch from another etcd cluster, so no standby can take over there", "end all controllers of this election, and start one once with --take-over")
	default:
		d.add(fmt.Sprintf("%s acts on %s, which refuses the controllers of this election", quoted, hosts), "end it, or start the controllers of this election once with --take-over")
	}
}

// source returns what should count the epochs on a host: its election, or else what does on most
// hosts; of several the one of the first host.
func (d *Document) source() string {
	if e := d.Election; e != nil {
		return fence.ElectionSource(e.cluster, e.Key)
	}
	count, best := map[string]int{}, ""
	for i := range d.Hosts {
		if d.Hosts[i].State == acts {
			count[d.Hosts[i].Source]++
		}
	}
	for i := range d.Hosts {
		if s := d.Hosts[i].Source; count[s] > count[best] {
			best = s
		}
	}
	return best
}
