package audit

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/seed-3119e985/genv/enforce"
	"github.com/seed-3119e985/genv/enforce/order"
	"github.com/seed-3119e985/genv/snapshot"
)

// HistoryEntry is an action on a process or attachment and its reason, or another action of an operator: a line of
// `genv remote history` and `genv history`.
type HistoryEntry struct {
	// ID is the decision's: the same on controller, host, page and in mail. Missing for operators' actions, and for a
	// notice about several findings.
	ID        string                `json:"id,omitempty"`
	Time      time.Time             `json:"time"`
	Host      snapshot.Hostname     `json:"host,omitempty"`
	User      snapshot.Username     `json:"user,omitempty"`
	UID       *snapshot.UID         `json:"uid,omitempty"`
	PID       snapshot.PID          `json:"pid,omitempty"`
	EID       snapshot.EnvID        `json:"eid,omitempty"`
	Device    *snapshot.DeviceIndex `json:"device,omitempty"`
	Container string                `json:"container,omitempty"` // of the process
	Status    order.OutcomeStatus   `json:"status"`              // what came of it, or dry-run
	Reason    string                `json:"reason,omitempty"`
	Why       []string              `json:"why"`               // the findings that led to it
	Rules     []enforce.Rule        `json:"rules,omitempty"`   // of these findings
	IDs       []string              `json:"ids"`               // of these findings
	Notified  time.Time             `json:"told,omitzero"`     // when the user was notified before that
	Order     string                `json:"report,omitempty"`  // the order that it was part of
	By        string                `json:"by,omitempty"`      // an operator; on a host the account
	Action    string                `json:"action,omitempty"`  // an operator's, or "notice"
	Channel   Channel               `json:"channel,omitempty"` // of a notice
	To        string                `json:"to,omitempty"`      // likewise
	Due       time.Time             `json:"due,omitzero"`      // when what a notice warns of is due
	Text      string                `json:"-"`                 // says what was done, or all of a notice
	Judged    []string              `json:"judged,omitempty"`  // the lines that were judged, at most 16
	over      int                   // of a warning, how many of its findings are over
	warned    []string              // findings of which this notice is the first, before anything was done about them
}

// ActionNotice is the Action of a notice.
const ActionNotice = "notice"

// History joins the records of a log to actions, oldest first. An outcome without a record is unknown.
func History(path string, filter Filter) ([]HistoryEntry, Damage, error) {
	j := joiner{
		filter: &filter, notified: map[string]lastNotices{}, warned: map[string]bool{},
		warnings: map[string][]*HistoryEntry{}, open: map[itemKey]*HistoryEntry{}, undone: map[itemKey]*HistoryEntry{},
	}
	damage, err := Scan(path, func(r *Record) error { j.add(r); return nil })
	list := make([]HistoryEntry, 0, len(j.list))
	for _, e := range j.list {
		list = append(list, *e)
	}
	return list, damage, err
}

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
	filter   *Filter
	notified map[string]lastNotices     // by finding
	warned   map[string]bool            // findings of which there was a notice, or about which something was done
	warnings map[string][]*HistoryEntry // that have a time when they are due, by finding
	open     map[itemKey]*HistoryEntry  // order items without an outcome yet
	undone   map[itemKey]*HistoryEntry  // what a dry run would have done, until its findings are over
	list     []*HistoryEntry
}

type lastNotices struct{ last, before time.Time }

// A host shows the notice of an action first.
const withAction = 2 * time.Second

func (n lastNotices) add(at time.Time) lastNotices {
	if at.Sub(n.last) >= withAction { // else it is the same notice, to another user
		n.before = n.last
	}
	n.last = at
	return n
}

// warned is when the user was notified before an action. The action's own notice counts only if there is no other.
func (n lastNotices) warned(action time.Time) time.Time {
	if action.Sub(n.last) < withAction && !n.before.IsZero() {
		return n.before
	}
	return n.last
}

func (j *joiner) add(r *Record) {
	switch r.Kind {
	case KindFinding:
		if r.Decision == enforce.DecisionAct {
			j.firstOf(r.IDs) // what its user is notified of from now on isn't a warning
		}
		if r.Decision == enforce.DecisionDryRun && r.Finding != nil && len(r.IDs) > 0 {
			j.wouldAct(r)
		}
	case KindCleared:
		for _, id := range r.IDs {
			delete(j.notified, id)
			delete(j.warned, id)
			maps.DeleteFunc(j.undone, func(_ itemKey, e *HistoryEntry) bool { return slices.Contains(e.IDs, id) })
			for _, e := range j.warnings[id] {
				e.over++
			}
			delete(j.warnings, id)
		}
	case KindHook:
		j.notice(r)
	case KindNotified:
		j.notice(r)
		if r.Channel == ChannelLogin {
			return // it may not have been read
		}
		for _, id := range r.IDs {
			if r.Reason == "" {
				j.notified[id] = j.notified[id].add(r.Time)
			}
		}
	case KindDenied:
		j.operator(r, ActionDenied)
	case KindOperator, KindExtension:
		if r.Kind == KindExtension {
			j.firstOf(r.IDs) // the answer to a request isn't a warning
		}
		j.operator(r, "")
	case KindOrder, KindOutcome:
		if j.filter.Matches(r) || j.open[r.key()] != nil { // an outcome may come after Until
			j.action(r)
		}
	}
}

// firstOf returns, once, findings without an earlier warning.
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

func (j *joiner) notice(r *Record) {
	var warned []string
	if r.Kind == KindNotified && r.Reason == "" {
		warned = j.firstOf(r.IDs)
	}
	if !j.filter.Notices || !j.filter.Matches(r) {
		return
	}
	e := j.entry(r)
	e.Action, e.Channel, e.To, e.warned, e.Text = ActionNotice, cmp.Or(r.Channel, ChannelTerminal), r.To, warned, r.Text
	e.Why[0], _, _ = strings.Cut(r.Text, "\n")
	if e.Due = r.Due; !e.Due.IsZero() {
		for _, id := range r.IDs {
			j.warnings[id] = append(j.warnings[id], e)
		}
	}
	if len(r.IDs) == 1 && r.Kind == KindNotified {
		e.ID = WarningID(r.IDs[0])
	}
	if e.Reason = r.Reason; r.Reason != "" {
		e.Status = order.StatusFailed
	}
}

// action is for records without one.
func (j *joiner) operator(r *Record, action string) {
	if !j.filter.Matches(r) {
		return
	}
	e := j.entry(r)
	e.Action, e.Status = cmp.Or(r.Action, action), r.Status
	if r.Status != "" {
		e.Reason = r.Reason
	}
}

func (j *joiner) entry(r *Record) *HistoryEntry {
	e := &HistoryEntry{
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

// StatusDryRun is the Status of what a dry run would have done.
const StatusDryRun order.OutcomeStatus = "dry-run"

func (j *joiner) wouldAct(r *Record) {
	for _, p := range r.Finding.Terminate {
		item := *r
		item.Host, item.PID, item.Device = p.Host, p.PID, nil
		j.leftUndone(&item, fmt.Sprintf("Would terminate process %d", p.PID))
	}
	for _, d := range r.Finding.Detach {
		item := *r
		item.Host, item.PID, item.EID, item.Device = d.Host, 0, d.EID, &d.Index
		j.leftUndone(&item, fmt.Sprintf("Would detach GPU %s of environment %s", d.Index, d.EID))
	}
}

// leftUndone lists an action once, even for several findings.
func (j *joiner) leftUndone(r *Record, what string) {
	if !j.filter.Notices || !j.filter.Matches(r) {
		return
	}
	key := r.key()
	key.order = ""
	e := j.undone[key]
	if e == nil {
		e = j.entry(r)
		e.ID, e.Status, e.Text, e.By, e.IDs, e.Why = WarningID(r.IDs[0]), StatusDryRun, what, "", nil, nil
		j.undone[key] = e
	}
	if !slices.Contains(e.IDs, r.IDs[0]) {
		e.IDs, e.Why = append(e.IDs, r.IDs[0]), append(e.Why, r.Text)
		e.Rules = (&Record{IDs: e.IDs}).rules()
	}
}

// Decided returns the entries about a decision, of a list with notices: an action; or the warnings about a finding and
// the actions because of it.
func Decided(entries []HistoryEntry, id string) []HistoryEntry {
	return slices.DeleteFunc(slices.Clone(entries), func(e HistoryEntry) bool {
		return e.ID != id && !slices.ContainsFunc(e.IDs, func(finding string) bool { return WarningID(finding) == id })
	})
}

// Latest returns the last action of an order and the last warning that isn't over, or a later notice about all that it
// warns of. It returns no action before a warning.
func Latest(entries []HistoryEntry, now time.Time) (found []HistoryEntry) {
	last := make(map[string]int) // notice about a finding
	acted := make(map[string]bool)
	for i, e := range slices.Backward(entries) {
		if e.Order != "" {
			if len(found) == 0 {
				found = entries[i : i+1 : i+1]
			}
			for _, id := range e.IDs {
				acted[id] = true
			}
			continue
		}
		isOver := func(id string) bool { return acted[id] }
		if e.Due.After(now) && (e.over == 0 || e.over < len(e.IDs)) && !slices.ContainsFunc(e.IDs, isOver) {
			said := len(entries)
			for _, id := range e.IDs {
				said = min(said, max(i, last[id]))
			}
			if said == len(entries) {
				said = i
			}
			return append(found, entries[said])
		}
		for _, id := range e.IDs {
			if e.Action == ActionNotice && e.Status == "" {
				last[id] = max(last[id], i)
			}
		}
	}
	return found
}

// Decided is an item of an order whose outcome is unknown yet.
func (r *Record) Decided() *HistoryEntry {
	return &HistoryEntry{
		ID: DecisionID(r.Order, r.PID, r.EID, r.Device), Time: r.Time, Host: r.Host, User: r.User, UID: r.UID,
		By: r.By, Text: r.Text, Judged: r.Judged, Why: r.Why,
	}
}
