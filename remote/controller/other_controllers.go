package controller

import (
	"slices"

	"github.com/seed-3119e985/genv/enforce"
	"github.com/seed-3119e985/genv/remote/agent/controllers"
	"github.com/seed-3119e985/genv/remote/controller/others"
)

// AboutOtherController reports whether an event is about another controller that enforces
// the same hosts: its Text says all.
func AboutOtherController(kind enforce.EventKind) bool {
	return slices.Contains([]others.Action{others.Appeared, others.Changed, others.Ended, others.Unknown}, others.Action(kind))
}

// learnOfOthers learns which other controllers enforce the hosts of a full cycle, from what
// they said in it. Events about what is new wait in unsaid.
func (c *Controller) learnOfOthers(cycle *Cycle, said map[string]controllers.Answer) {
	if c.Self == nil || c.DryRun {
		return
	}
	hosts := make([]others.Host, len(cycle.Cluster.Hosts))
	for i := range cycle.Cluster.Hosts {
		h := &cycle.Cluster.Hosts[i]
		hosts[i] = others.Host{Name: h.Name, Answered: h.Err == nil}
		if h.Err == nil {
			hosts[i].Answer = said[cycle.answered[h.Name].Name]
		}
	}
	for _, n := range c.others.Learn(c.Self, hosts, c.Now()) {
		c.unsaid = append(c.unsaid, enforce.Event{Kind: enforce.EventKind(n.Action), Host: n.Host, Text: n.Text})
	}
	c.unsaid = c.unsaid[max(0, len(c.unsaid)-maxUnsaid):]
}

// maxUnsaid is how many events wait for a cycle that can be recorded.
const maxUnsaid = 256
