// Package companions plans what a controller sends besides orders: messages to users on their terminals, mail to users,
// orders for the kernel guards of hosts, and allowances, which tell hosts about rules and caps.
//
//	c.Companions = []controller.Companion{&companions.Guards{Interval: interval}, &companions.Messages{}}
//
// The controller knows none of them, but keeps the memories of those that have one. A user of a host gets one message
// for all news at a time, and a limited number in an hour.
package companions

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"path"
	"slices"
	"strings"
	"time"

	"github.com/seed-3119e985/genv/enforce"
	"github.com/seed-3119e985/genv/enforce/audit"
	"github.com/seed-3119e985/genv/enforce/notify"
	"github.com/seed-3119e985/genv/enforce/policy"
	"github.com/seed-3119e985/genv/enforce/safety"
	"github.com/seed-3119e985/genv/remote"
	"github.com/seed-3119e985/genv/remote/agent"
	"github.com/seed-3119e985/genv/remote/controller"
	"github.com/seed-3119e985/genv/snapshot"
	"github.com/seed-3119e985/genv/snapshot/text"
)

// Messages shows users findings and actions on their terminals. Its memory outlasts restarts.
type Messages struct {
	controller.HourlyQuota[snapshot.UID]
	// Warned has the warnings without an action yet, and Exempted the findings that ended by an exemption, by id.
	Warned   map[string]*warned `json:"warned,omitempty"`
	Exempted map[string]bool    `json:"exempted,omitempty"`
}

// batch has the messages for a host, one for each user, since it rings a bell.
type batch struct {
	messages   []agent.Message
	about      [][]notify.UserMessage // the content of each message
	suppressed []notify.UserMessage   // not sent
	over       []agent.Message        // these end warnings
	shown      []agent.Receipt        // of each message
}

// Name implements controller.MemoryKeeper.
func (*Messages) Name() string { return "messages" }

// Memory implements controller.MemoryKeeper.
func (m *Messages) Memory() any { return m }

// Plan implements controller.Companion.
func (m *Messages) Plan(
	round *controller.Round, events []enforce.Event,
) (deliveries []*controller.Delivery, _ controller.Effects) {
	if round.DryRun {
		return nil, controller.Effects{}
	}
	recipients := notify.NewRecipients(round.Cluster)
	byHost := notificationsOf(events, func(f *enforce.Finding) []notify.UserMessage {
		return notify.Messages(f, recipients, round.Now)
	}, func(f *enforce.Finding) []notify.UserMessage { // last, and so not in place of a warning
		return notify.Elsewhere(f, recipients, round.Policy.Account, round.Now)
	})
	over := m.addLasting(round, events, byHost)
	m.Forget(round.Now)
	hosts := slices.AppendSeq(slices.Collect(maps.Keys(byHost)), maps.Keys(over))
	slices.Sort(hosts)
	for _, host := range slices.Compact(hosts) {
		b := m.batch(byHost[host], round)
		b.over = over[host]
		deliveries = append(deliveries, b.delivery(host))
	}
	return deliveries, controller.Effects{}
}

func notificationsOf(
	events []enforce.Event, kinds ...func(*enforce.Finding) []notify.UserMessage,
) map[snapshot.Hostname][]notify.UserMessage {
	list := make(map[snapshot.Hostname][]notify.UserMessage)
	for _, of := range kinds {
		for i := range events {
			if events[i].Kind != enforce.EventNotify {
				continue
			}
			for _, n := range of(events[i].Finding) {
				if len(list[n.Host]) < safety.MaxEventsPerHost {
					list[n.Host] = append(list[n.Host], n)
				}
			}
		}
	}
	return list
}

func (m *Messages) batch(notifications []notify.UserMessage, round *controller.Round) *batch {
	b := &batch{}
	of := make(map[snapshot.UID][]notify.UserMessage)
	for _, n := range notifications {
		of[n.UID] = append(of[n.UID], n)
	}
	for _, uid := range slices.Sorted(maps.Keys(of)) {
		footer, ok := admit(&m.HourlyQuota, notifications[0].Host, uid, mostOf(of[uid]), round.Now)
		if !ok {
			b.suppressed = append(b.suppressed, of[uid]...)
			continue
		}
		message := agent.Message{UID: uid, Text: textOf(of[uid], round.Policy.Fleet().Contact)}
		if footer != "" {
			message.Text += "\n" + footer
		}
		for _, n := range of[uid] {
			message.IDs = append(message.IDs, n.ID)
			if left := n.Due.Sub(round.Now).Milliseconds(); n.Pending && !n.AwaitsHosts && left > 0 &&
				(message.DueMS == 0 || left < message.DueMS) {
				message.DueMS = left
			}
		}
		b.messages, b.about = append(b.messages, message), append(b.about, of[uid])
	}
	return b
}

// messagesWithin is how long messages may take when the run ends, so that the next controller doesn't repeat them.
const messagesWithin = 2 * time.Second

func (b *batch) delivery(host snapshot.Hostname) *controller.Delivery {
	return &controller.Delivery{
		Host: host, Content: b,
		Send: func(ctx context.Context, link controller.Link, h remote.Host) (err error) {
			if len(b.messages)+len(b.over) == 0 {
				return nil
			}
			longer, cancel := remote.WithGracePeriod(ctx, messagesWithin)
			defer cancel()
			b.shown, err = link.Notify(longer, h, slices.Concat(b.messages, b.over))
			return err
		},
	}
}

// Learn implements controller.Companion. Lost warnings are sent again, but not messages about actions, which are over.
func (m *Messages) Learn(round *controller.Round, d *controller.Delivery) (effects controller.Effects) {
	uncounted := make(map[snapshot.UID]bool)
	for _, n := range d.Content.(*batch).notified(d.Err) {
		if suppressed := errors.Is(n.Err, errSuppressed); !suppressed {
			if n.Err != nil && !n.Information && !errors.Is(n.Err, agent.ErrCannotNotify) &&
				!errors.Is(n.Err, agent.ErrRefused) {
				effects.Unwarned = append(effects.Unwarned, n.ID)
			}
			if n.Terminals == 0 && !uncounted[n.UID] { // what was shown on no terminal doesn't count
				uncounted[n.UID] = true
				m.Refund(d.Host, n.UID, 1)
			}
		}
		if !n.Information {
			round.Notified = append(round.Notified, n)
			effects.Records = append(effects.Records, recordOf(&n))
		}
	}
	return effects
}

func (b *batch) notified(err error) (list []controller.Notified) {
	for i, about := range b.about {
		var shown agent.Receipt
		if i < len(b.shown) {
			shown = b.shown[i]
		}
		for _, n := range about {
			list = append(list, controller.Notified{
				UserMessage: n, Terminals: shown.Terminals, Kept: shown.Kept, Err: err,
			})
		}
	}
	for _, n := range b.suppressed {
		list = append(list, controller.Notified{UserMessage: n, Err: errSuppressed})
	}
	return list
}

// maxShownInMessage is how many findings one message shows in full.
const maxShownInMessage = 6

// textOf lists the findings, each advice once for those that share it, and who decided.
func textOf(notifications []notify.UserMessage, contact string) string {
	var lines []string
	shown := notifications[:min(len(notifications), maxShownInMessage)]
	for i, n := range shown {
		lines = append(lines, n.Shown())
		if i+1 < len(shown) && shown[i+1].Advice == n.Advice {
			continue
		}
		if more := len(notifications) - len(shown); i+1 == len(shown) && more > 0 {
			lines = append(lines, fmt.Sprintf("And there are %d more; genv history shows what is done.", more))
		}
		if n.Advice != "" {
			lines = append(lines, n.Advice)
		}
	}
	lines = append(lines, notify.Decided(contact))
	return strings.Join(lines, "\n")
}

func recordOf(n *controller.Notified) audit.Record {
	r := audit.Record{
		Kind: audit.KindNotified, Channel: audit.ChannelTerminal, IDs: []string{n.ID}, Host: n.Host, User: n.User,
		UID: &n.UID, Text: n.Shown() + "\n" + n.Advice,
	}
	switch {
	case n.Err != nil:
		r.Reason = n.Err.Error()
	case n.Kept:
		r.Channel = audit.ChannelLogin
	case n.Terminals == 0:
		r.Reason = "not logged in, or takes no messages (mesg n)"
	}
	return r
}

var errSuppressed = errors.New("suppressed: the user was sent the messages of an hour already")

const messagesAnHour = 20 // for a user, so that terminals stay usable

// mostOf is how many messages an hour are allowed for a list. Those that other users cause by waiting get half.
func mostOf(list []notify.UserMessage) int {
	if slices.ContainsFunc(list, func(n notify.UserMessage) bool { return !n.ForOthers }) {
		return messagesAnHour
	}
	return messagesAnHour / 2
}

// admit counts a message, and reports whether it may be sent. note tells of messages that were or will be suppressed.
func admit(
	l *controller.HourlyQuota[snapshot.UID], host snapshot.Hostname, uid snapshot.UID, most int, now time.Time,
) (note string, ok bool) {
	before, spent, ok := l.Spend(host, uid, 1, most, 0, now)
	switch {
	case !ok:
		return "", false
	case spent.Sent == messagesAnHour:
		note = "Further messages are suppressed for up to an hour; genv history shows what is done."
	case spent.Sent == most:
		note = "Further messages like this are suppressed for up to an hour; genv history shows what is done."
	case before.Suppressed > 0:
		note = fmt.Sprintf("%d more messages suppressed.", before.Suppressed)
	}
	return note, true
}

type warned struct {
	Messages []notify.UserMessage `json:"messages"`
	Hold     time.Time            `json:"hold,omitzero"` // when the hold began that they were told of
}

const (
	// longHold is after how long warned users are told of a hold: they rely on the time of their warning.
	longHold    = time.Hour
	maxExempted = 1000 // remembered findings
)

// addLasting adds messages about what operators did about earlier warnings: an exemption, its end, and a hold of over
// an hour. It returns the messages that end warnings, by host.
func (m *Messages) addLasting(
	round *controller.Round, events []enforce.Event, byHost map[snapshot.Hostname][]notify.UserMessage,
) map[snapshot.Hostname][]agent.Message {
	over, went := make(map[snapshot.Hostname][]agent.Message), make(map[string]bool)
	if m.Warned == nil {
		m.Warned = make(map[string]*warned)
	}
	if m.Exempted == nil || len(m.Exempted) > maxExempted {
		m.Exempted = make(map[string]bool)
	}
	add := func(n notify.UserMessage, follows string) {
		n.Pending, n.Information, n.Follows, n.Advice, n.At = false, true, follows, "", round.Now
		byHost[n.Host] = append(byHost[n.Host], n)
	}
	for i := range events {
		switch e := &events[i]; e.Kind {
		case enforce.EventNotify:
			m.Warned[e.ID] = &warned{} // replaces earlier warnings
		case enforce.EventChanged:
			went[e.ID] = e.Finding.Pending
		case enforce.EventOver:
			// When a part of a cap's finding goes, the rest gets other IDs: it isn't over, and people are told of them.
			if before := m.Warned[e.ID]; before != nil && !went[path.Dir(e.ID)] {
				for _, n := range before.Messages {
					by := exemptionOf(round, &n)
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
				short := *n // the rest isn't repeated, and commands may be private
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
	if h := round.Hold; h != nil && round.Now.Sub(h.Since) >= longHold {
		for _, id := range slices.Sorted(maps.Keys(m.Warned)) {
			if before := m.Warned[id]; !before.Hold.Equal(h.Since) {
				before.Hold = h.Since
				for _, n := range before.Messages {
					add(n, fmt.Sprintf("nothing is done about it while enforcement is on hold, as it is since %s (%s)"+
						"; what is due then is done at once", notify.Clock(h.Since), text.OneLine(h.Reason)))
				}
			}
		}
	}
	return over
}

// exemptionOf returns the exemption for a warning; nil for none, or if it is only for a GPU.
func exemptionOf(round *controller.Round, n *notify.UserMessage) *policy.Exemption {
	for i := range round.Exemptions {
		e := &round.Exemptions[i]
		rule := e.Rule == "" || e.Rule == n.Rule ||
			strings.HasPrefix(n.ID, string(enforce.RuleCaps)+"/"+string(e.Rule)+"/")
		user := e.User == "" || round.Policy.Account(e.User) == round.Policy.Account(n.User)
		if rule && user && (e.Host == "" || e.Host == n.Host) && e.Device == nil && e.Begun(round.Now) {
			return e
		}
	}
	return nil
}
