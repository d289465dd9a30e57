package audit

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/seed-3119e985/genv/enforce"
	"github.com/seed-3119e985/genv/enforce/order"
	"github.com/seed-3119e985/genv/snapshot"
)

// Entry is an action on a process or an attachment, and why it was taken, or something
// else that an operator had done: a line of `genv remote history` and `genv history`.
type Entry struct {
	// ID is that of the decision: the same on the controller, on the host, in mail and on the web page.
	// Missing for what operators do, and for a notice about several findings.
	ID        string                `json:"id,omitempty"`
	Time      time.Time             `json:"time"`
	Host      snapshot.Hostname     `json:"host,omitempty"`
	User      snapshot.Username     `json:"user,omitempty"`
	UID       *snapshot.UID         `json:"uid,omitempty"`
	PID       snapshot.PID          `json:"pid,omitempty"`
	EID       snapshot.EnvID        `json:"eid,omitempty"`
	Device    *snapshot.DeviceIndex `json:"device,omitempty"`
	Container string                `json:"container,omitempty"` // of the process
	// Status is what came of it, or dry-run.
	Status   order.OutcomeStatus `json:"status"`
	Reason   string              `json:"reason,omitempty"`
	Why      []string            `json:"why"`              // the findings that led to it
	Rules    []enforce.Rule      `json:"rules,omitempty"`  // theirs
	IDs      []string            `json:"ids"`              // theirs
	Notified time.Time           `json:"told,omitzero"`    // when the user was notified before that
	Order    string              `json:"report,omitempty"` // that it was part of
	By       string              `json:"by,omitempty"`     // an operator; on a host the account
	// Action is an operator's, or "notice".
	Action  string    `json:"action,omitempty"`
	Channel Channel   `json:"channel,omitempty"` // of a notice
	To      string    `json:"to,omitempty"`      // likewise
	Due     time.Time `json:"due,omitzero"`      // when it is due what a notice warns of
	Text    string    `json:"-"`                 // says what was done, or all of a notice
	// Judged are the lines that were judged, at most 16.
	Judged []string `json:"judged,omitempty"`
	// warned are the findings of which this notice is the first, while nothing is done
	// about them yet.
	warned []string
}

// ActionNotice is the Action of an Entry about a notice.
const ActionNotice = "notice"

// History joins the records of a log to a list of actions, the oldest first. A
// order item without an outcome was sent by a controller that ended before it
// received the outcome, which therefore is unknown.
func History(path string, filter Filter) ([]Entry, Damage, error) {
	j := newJoiner()
	damage, err := Scan(path, func(r *Record) error { j.add(r, &filter); return nil })
	list := make([]Entry, 0, len(j.list))
	for _, e := range j.list {
		list = append(list, *e)
	}
	return list, damage, err
}

// itemKey names an item of an order, or without an order an action that a dry run left undone.
type itemKey struct {
	order  string
	host   snapshot.Hostname
	pid    snapshot.PID
	eid    snapshot.EnvID
	device snapshot.DeviceIndex
}

func (r *Record) key() itemKey {
	key := itemKey{order: r.Order, host: r.Host, pid: r.PID}
	if r.Device != nil {
		key.eid, key.device = r.EID, *r.Device
	}
	return key
}

type joiner struct {
	notified map[string]lastNotices // by finding
	warned   map[string]bool        // findings of which there was a notice, or about which something was done
	open     map[itemKey]*Entry     // order items without an outcome yet
	undone   map[itemKey]*Entry     // what a dry run would have done, until its findings are over
	list     []*Entry
}

// lastNotices are when a user was last notified of a finding, and when before that.
type lastNotices struct{ last, before time.Time }

// withAction is how soon an action follows the notice of it: a host shows that first.
const withAction = 2 * time.Second

func (n lastNotices) add(at time.Time) lastNotices {
	if at.Sub(n.last) >= withAction { // else it is the same notice, to another user
		n.before = n.last
	}
	n.last = at
	return n
}

// warned is when the user was notified before an action. The notice of the action itself counts only without another.
func (n lastNotices) warned(action time.Time) time.Time {
	if action.Sub(n.last) < withAction && !n.before.IsZero() {
		return n.before
	}
	return n.last
}

func newJoiner() joiner {
	return joiner{
		notified: map[string]lastNotices{}, warned: map[string]bool{}, open: map[itemKey]*Entry{},
		undone: map[itemKey]*Entry{},
	}
}

func (j *joiner) add(r *Record, filter *Filter) {
	switch r.Kind {
	case KindFinding:
		if r.Decision == enforce.DecisionAct {
			j.firstOf(r.IDs) // what its user is notified of from now on isn't a warning
		}
		if r.Decision == enforce.DecisionDryRun && r.Finding != nil && len(r.IDs) > 0 {
			j.wouldAct(r, filter)
		}
	case KindCleared:
		for _, id := range r.IDs {
			delete(j.notified, id)
			delete(j.warned, id)
			j.isOver(id)
		}
	case KindHook:
		j.notice(r, filter)
	case KindNotified:
		j.notice(r, filter)
		if r.Channel == ChannelLogin {
			return // it may not have been read
		}
		for _, id := range r.IDs {
			if r.Reason == "" {
				j.notified[id] = j.notified[id].add(r.Time)
			}
		}
	case KindDenied:
		j.operator(r, filter, ActionDenied)
	case KindOperator, KindExtension:
		if r.Kind == KindExtension {
			j.firstOf(r.IDs) // the answer to a request isn't a warning
		}
		j.operator(r, filter, "")
	case KindOrder, KindOutcome:
		if filter.Matches(r) || j.open[r.key()] != nil { // an outcome may come after Until
			j.action(r)
		}
	}
}

// firstOf returns those findings that were not warned of before, and notes them.
func (j *joiner) firstOf(ids []string) []string {
	var first []string
	for _, id := range ids {
		if !j.warned[id] {
			first = append(first, id)
		}
		j.warned[id] = true
	}
	return first
}

// notice describes a delivery to a user, if that is asked for.
func (j *joiner) notice(r *Record, filter *Filter) {
	var warned []string
	if r.Kind == KindNotified && r.Reason == "" {
		warned = j.firstOf(r.IDs)
	}
	if !filter.Notices || !filter.Matches(r) {
		return
	}
	e := j.entry(r)
	e.Action, e.Channel, e.To, e.warned, e.Text = ActionNotice, cmp.Or(r.Channel, ChannelTerminal), r.To, warned, r.Text
	e.Why[0], _, _ = strings.Cut(r.Text, "\n")
	e.Due = r.Due
	if len(r.IDs) == 1 && r.Kind == KindNotified {
		e.ID = WarningID(r.IDs[0])
	}
	if e.Reason = r.Reason; r.Reason != "" {
		e.Status = order.StatusFailed
	}
}

// operator describes what an operator had done, or what a record without an action is about.
func (j *joiner) operator(r *Record, filter *Filter, action string) {
	if !filter.Matches(r) {
		return
	}
	e := j.entry(r)
	e.Action, e.Status = cmp.Or(r.Action, action), r.Status
	if r.Status != "" {
		e.Reason = r.Reason
	}
}

// entry adds an entry with what all have from their records.
func (j *joiner) entry(r *Record) *Entry {
	e := &Entry{
		Time: r.Time, Host: r.Host, User: r.User, UID: r.UID, PID: r.PID, EID: r.EID, Device: r.Device,
		By: r.By, IDs: append([]string{}, r.IDs...), Why: []string{r.Text}, Rules: r.rules(),
	}
	j.list = append(j.list, e)
	return e
}

func (j *joiner) action(r *Record) {
	key := r.key()
	e := j.open[key]
	if e == nil {
		e = j.entry(r)
		e.ID, e.Text, e.Judged = DecisionID(r.Order, r.PID, r.EID, r.Device), r.Text, r.Judged
		e.Order, e.Container, e.IDs, e.Why = r.Order, r.Container, r.IDs, r.Why
		e.Status, e.Reason = order.StatusUnknown, "genv ended before it received the outcome"
		for _, id := range r.IDs {
			if at := j.notified[id].warned(r.Time); at.After(e.Notified) {
				e.Notified = at
			}
		}
		j.open[key] = e
	}
	if r.Kind == KindOutcome {
		e.Time, e.Status, e.Reason = r.Time, r.Status, r.Reason
		delete(j.open, key)
	}
}

// Stats count what was done, or would have been done in a dry run, by user and rule.
type Stats struct {
	// Rows are sorted by user and rule. What was done because of several rules counts in each.
	Rows []StatsRow `json:"rows"`
	// Total counts each of it once.
	Total ActionCounts `json:"total"`
}

// StatsRow is what was done to a user because of a rule. The user is the uid where no name
// is known, and empty for what concerned a host; the rule is empty for what no rule led to.
type StatsRow struct {
	User snapshot.Username `json:"user"` // the uid without a name, empty for what concerned a host
	Rule enforce.Rule      `json:"rule"` // empty for what an operator had done
	ActionCounts
}

// ActionCounts are numbers of actions.
type ActionCounts struct {
	Warned     int `json:"warned"`     // findings of which the user was notified before
	Terminated int `json:"terminated"` // processes
	Detached   int `json:"detached"`   // GPUs
	Exempted   int `json:"exempted"`   // by operators
	Refused    int `json:"refused"`    // by the host
	Failed     int `json:"failed"`     // tried without success, or the outcome is unknown
	// WouldTerminate is what a dry run would have ended.
	WouldTerminate int `json:"would_terminate,omitempty"`
	WouldDetach    int `json:"would_detach,omitempty"`
}

func (c ActionCounts) plus(d ActionCounts) ActionCounts {
	return ActionCounts{
		c.Warned + d.Warned, c.Terminated + d.Terminated, c.Detached + d.Detached,
		c.Exempted + d.Exempted, c.Refused + d.Refused, c.Failed + d.Failed,
		c.WouldTerminate + d.WouldTerminate, c.WouldDetach + d.WouldDetach,
	}
}

// Sum counts entries, which must include notices: see Filter.
func Sum(entries []Entry) Stats {
	type row struct {
		user snapshot.Username
		rule enforce.Rule
	}
	rows := make(map[row]ActionCounts)
	var s Stats
	add := func(user snapshot.Username, rules []enforce.Rule, c ActionCounts) {
		if c == (ActionCounts{}) {
			return
		}
		if len(rules) == 0 {
			rules = []enforce.Rule{""}
		}
		for _, rule := range rules {
			rows[row{user, rule}] = rows[row{user, rule}].plus(c)
		}
		s.Total = s.Total.plus(c)
	}
	for i := range entries {
		e := &entries[i]
		user := userOfEntry(e)
		for _, id := range e.warned {
			add(user, (&Record{IDs: []string{id}}).rules(), ActionCounts{Warned: 1})
		}
		add(user, e.Rules, countsOf(e))
	}
	s.Rows = make([]StatsRow, 0, len(rows))
	for r, c := range rows {
		s.Rows = append(s.Rows, StatsRow{User: r.user, Rule: r.rule, ActionCounts: c})
	}
	slices.SortFunc(s.Rows, func(a, b StatsRow) int {
		return cmp.Or(cmp.Compare(a.User, b.User), cmp.Compare(a.Rule, b.Rule))
	})
	return s
}

func userOfEntry(e *Entry) snapshot.Username {
	if e.User == "" && e.UID != nil {
		return snapshot.Username(fmt.Sprint(*e.UID))
	}
	return e.User
}

// countsOf is what an entry counts for, apart from warnings: nothing if there was nothing
// to do any more.
func countsOf(e *Entry) ActionCounts {
	switch {
	case e.Status == StatusDryRun && e.Device != nil:
		return ActionCounts{WouldDetach: 1}
	case e.Status == StatusDryRun:
		return ActionCounts{WouldTerminate: 1}
	case e.Action == "exempt" && e.Status == "":
		return ActionCounts{Exempted: 1}
	case e.Action != "":
		return ActionCounts{}
	}
	switch e.Status {
	case order.StatusTerminated, order.StatusKilled, order.StatusSignalled:
		return ActionCounts{Terminated: 1}
	case order.StatusDetached:
		return ActionCounts{Detached: 1}
	case order.StatusRefused:
		return ActionCounts{Refused: 1}
	case order.StatusFailed, order.StatusSurvived, order.StatusUnknown:
		return ActionCounts{Failed: 1}
	case order.StatusGone, order.StatusChanged, order.StatusNotAttached:
	}
	return ActionCounts{}
}
