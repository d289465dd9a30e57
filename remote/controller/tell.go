package controller

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/seed-3119e985/genv/enforce"
	"github.com/seed-3119e985/genv/enforce/audit"
	"github.com/seed-3119e985/genv/remote"
	"github.com/seed-3119e985/genv/remote/agent"
	"github.com/seed-3119e985/genv/snapshot"
)

// Told is that a user was told of a finding, or why not.
type Told struct {
	enforce.Telling
	Terminals int
	Err       error
}

// tellTimeout bounds the telling, which must not keep anybody from acting.
const tellTimeout = 5 * time.Second

// tell tells a host's users what is about to happen. That it fails is told to
// the administrator, and keeps nobody from acting.
func (c *Controller) tell(ctx context.Context, host remote.Host, m mail) []Told {
	if len(m.tellings) == 0 {
		return m.suppressed
	}
	messages, of := messagesOf(m.tellings)
	for i := range messages {
		if note := m.notes[messages[i].UID]; note != "" {
			messages[i].Text += "\n" + note
		}
	}
	terminals, err := c.tellHost(ctx, host, messages)
	list := make([]Told, len(m.tellings), len(m.tellings)+len(m.suppressed))
	for i, t := range m.tellings {
		list[i] = Told{Telling: t, Err: err}
		if of[i] < len(terminals) {
			list[i].Terminals = terminals[of[i]]
		}
	}
	return append(list, m.suppressed...)
}

// messagesOf is one message for each user, since each rings a bell; and for each
// telling, in which message it stands.
func messagesOf(tellings []enforce.Telling) (messages []agent.Message, of []int) {
	of = make([]int, len(tellings))
	users := make(map[snapshot.UID]int)
	var texts [][]enforce.Telling
	for i, t := range tellings {
		at, known := users[t.UID]
		if !known {
			at = len(texts)
			users[t.UID], texts = at, append(texts, nil)
			messages = append(messages, agent.Message{UID: t.UID})
		}
		of[i], texts[at] = at, append(texts[at], t)
	}
	for i := range messages {
		messages[i].Text = textOf(texts[i])
	}
	return messages, of
}

// maxTellingsShown is how many findings one message tells in full.
const maxTellingsShown = 6

// textOf is the findings one after the other, and once for all that have the
// same, how to get right.
func textOf(tellings []enforce.Telling) string {
	var lines []string
	shown := tellings[:min(len(tellings), maxTellingsShown)]
	for i, t := range shown {
		lines = append(lines, t.Text)
		if i+1 < len(shown) && shown[i+1].Advice == t.Advice {
			continue
		}
		if more := len(tellings) - len(shown); i+1 == len(shown) && more > 0 {
			lines = append(lines, fmt.Sprintf("And there are %d more; genv history shows what is done.", more))
		}
		lines = append(lines, t.Advice)
	}
	return strings.Join(lines, "\n")
}

func (c *Controller) tellHost(ctx context.Context, host remote.Host, messages []agent.Message) ([]int, error) {
	ctx, cancel := context.WithTimeout(ctx, tellTimeout)
	defer cancel()
	return c.Link.Notify(ctx, host, messages)
}

// stage is how much a user was told of a finding.
type stage int

const (
	toldToWait stage = iota + 1
	toldOfAct
)

// maxTellings is how many findings a host's users are told of in a cycle; the
// others follow in the next. A host that makes up processes must not fill the
// record with users that it could not tell.
const maxTellings = maxFindingsRecorded

// messages are what users are to be told in this cycle: of a finding when it is
// first seen, and when it is acted on, each once for as long as it lasts. Users are
// not told of findings that a safety limit holds back: these may be a mistake, or
// made up by a host.
func (c *Controller) messages(cycle *Cycle) map[string][]enforce.Telling {
	if !cycle.Plan.TellUsers {
		return nil
	}
	owners := enforce.NewOwners(cycle.Cluster)
	missing := make(map[snapshot.Hostname]bool)
	for i := range cycle.Cluster.Hosts {
		h := &cycle.Cluster.Hosts[i]
		missing[h.Name] = h.Snapshot == nil
	}
	list := make(map[string][]enforce.Telling)
	told := make(map[string]toldFinding)
	for i := range cycle.Plan.Findings {
		f := &cycle.Plan.Findings[i]
		now := toldFinding{f.Host, toldToWait}
		if !f.Pending {
			now.stage = toldOfAct
		}
		told[f.ID] = now
		full := func(host snapshot.Hostname) bool { return len(list[string(host)]) >= maxTellings }
		if c.told[f.ID].stage >= now.stage || f.Held || full(f.Host) {
			told[f.ID] = c.told[f.ID]
			continue
		}
		for _, t := range f.Tellings(owners, c.Now()) {
			if !full(t.Host) {
				list[string(t.Host)] = append(list[string(t.Host)], t)
			}
		}
	}
	for id, before := range c.told {
		if missing[before.host] {
			told[id] = before // it may still be there
		}
	}
	c.told = told
	return list
}

// forgetLost has warnings given again that may not have arrived. What was acted
// on meanwhile is not told again: a host that breaks over it would never be held
// to the rules.
func (c *Controller) forgetLost(told []Told) {
	for _, t := range told {
		lost := t.Err != nil && !errors.Is(t.Err, agent.ErrCannotNotify) && !errors.Is(t.Err, agent.ErrRefused) && !errors.Is(t.Err, errSuppressed)
		if lost && c.told[t.ID].stage == toldToWait {
			delete(c.told, t.ID)
		}
	}
}

type toldFinding struct {
	host  snapshot.Hostname
	stage stage
}

// toldRecords are for the log.
func toldRecords(told []Told) []audit.Record {
	var records []audit.Record
	for _, t := range told {
		r := audit.Record{Kind: audit.KindTold, IDs: []string{t.ID}, Host: t.Host, UID: &t.UID, Text: t.Text + "\n" + t.Advice}
		switch {
		case t.Err != nil:
			r.Reason = t.Err.Error()
		case t.Terminals == 0:
			r.Reason = "not logged in, or takes no messages (mesg n)"
		}
		records = append(records, r)
	}
	return records
}
