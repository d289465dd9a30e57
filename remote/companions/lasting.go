package companions

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/seed-3119e985/genv/enforce"
	"github.com/seed-3119e985/genv/enforce/notify"
	"github.com/seed-3119e985/genv/enforce/policy"
	"github.com/seed-3119e985/genv/enforce/safety"
	"github.com/seed-3119e985/genv/remote/agent"
	"github.com/seed-3119e985/genv/remote/controller"
	"github.com/seed-3119e985/genv/snapshot"
	"github.com/seed-3119e985/genv/snapshot/text"
)

// warned is what people were told of a finding about which nothing is done yet.
type warned struct {
	Messages []notify.UserMessage `json:"messages"`
	Hold     time.Time            `json:"hold,omitzero"` // when the hold began of which they were told, too
}

const (
	// longHold is from when on a hold is told to those who were warned: they rely on the time of their warning.
	longHold = time.Hour
	// maxExempted is how many findings are remembered that ended by an exemption.
	maxExempted = 1000
)

// addLasting adds to the warnings of a cycle what operators did about those that are running: an exemption, its end,
// and a hold of over an hour. It returns what ends those that are over, by host.
func (m *Messages) addLasting(
	cycle *controller.Cycle, events []enforce.Event, byHost map[snapshot.Hostname][]notify.UserMessage,
) map[snapshot.Hostname][]agent.Message {
	over := make(map[snapshot.Hostname][]agent.Message)
	if m.Warned == nil {
		m.Warned = make(map[string]*warned)
	}
	if m.Exempted == nil || len(m.Exempted) > maxExempted {
		m.Exempted = make(map[string]bool)
	}
	add := func(n notify.UserMessage, follows string) {
		n.Pending, n.Information, n.Follows, n.Advice, n.At = false, true, follows, "", cycle.Now
		byHost[n.Host] = append(byHost[n.Host], n)
	}
	for i := range events {
		switch e := &events[i]; e.Kind {
		case enforce.EventNotify:
			m.Warned[e.ID] = &warned{} // what was said before doesn't hold any more
		case enforce.EventOver:
			if before := m.Warned[e.ID]; before != nil {
				for _, n := range before.Messages {
					by := exemptionOf(cycle, &n)
					if by == nil && len(over[n.Host]) < safety.MaxEventsPerHost {
						over[n.Host] = append(over[n.Host], agent.Message{UID: n.UID, IDs: []string{e.ID}, Over: true})
					} else if by != nil {
						m.Exempted[e.ID] = true
						add(n, fmt.Sprintf("nothing is done about it, since it is exempt until %s: %s",
							notify.Clock(by.Until), text.OneLine(by.Reason)))
					}
				}
			}
			delete(m.Warned, e.ID)
		}
	}
	for _, list := range byHost {
		for i := range list {
			n := &list[i]
			if before := m.Warned[n.ID]; before != nil && n.Pending {
				short := *n // nothing of these is said again, and commands may be private
				short.Command, short.Advice = "", ""
				before.Messages = append(before.Messages, short)
			}
			if m.Exempted[n.ID] && !n.Information {
				n.Line = "It is not exempt any more. " + n.Line
			}
		}
	}
	for i := range events {
		if events[i].Kind == enforce.EventNotify {
			delete(m.Exempted, events[i].ID)
		}
	}
	if h := cycle.Hold; h != nil && cycle.Now.Sub(h.Since) >= longHold {
		for _, id := range slices.Sorted(maps.Keys(m.Warned)) {
			if before := m.Warned[id]; !before.Hold.Equal(h.Since) {
				before.Hold = h.Since
				for _, n := range before.Messages {
					add(n, fmt.Sprintf("nothing is done about it while enforcement is on hold, as it is since %s (%s); what is due "+
						"then is done at once", notify.Clock(h.Since), text.OneLine(h.Reason)))
				}
			}
		}
	}
	return over
}

// exemptionOf is why what somebody was warned of is exempt now; nil if it isn't, or only a GPU is.
func exemptionOf(cycle *controller.Cycle, n *notify.UserMessage) *policy.Exemption {
	for i := range cycle.Exemptions {
		e := &cycle.Exemptions[i]
		rule := e.Rule == "" || e.Rule == n.Rule || strings.HasPrefix(n.ID, string(enforce.RuleCaps)+"/"+string(e.Rule)+"/")
		user := e.User == "" || cycle.Policy.Account(e.User) == cycle.Policy.Account(n.User)
		if rule && user && (e.Host == "" || e.Host == n.Host) && e.Device == nil && e.Begun(cycle.Now) {
			return e
		}
	}
	return nil
}
