package audit

import (
	"cmp"
	"encoding/json"
	"fmt"
	"slices"
	"time"

	"github.com/seed-3119e985/genv/enforce"
	"github.com/seed-3119e985/genv/enforce/decision"
	"github.com/seed-3119e985/genv/snapshot"
	"github.com/seed-3119e985/genv/snapshot/text"
)

// Kind is what a record is about. The texts appear in JSON.
type Kind string

// The kinds.
const (
	KindFinding   Kind = "finding" // seen for the first time, or decided on again
	KindCleared   Kind = "cleared" // a finding does not hold any more
	KindReport    Kind = "report"  // an item of a report that is about to be sent
	KindOutcome   Kind = "outcome" // the outcome of such an item
	KindNotified  Kind = "told"    // a user was notified, or could not be, by a Channel
	KindOverLimit Kind = "held"    // actions on a user or a host were not taken: a safety limit was exceeded
	KindFailed    Kind = "failed"  // a host did not answer
	// KindDuplicate is for two names of the same machine.
	KindDuplicate Kind = "duplicate"
	// KindRenumbered is for attachments that followed their GPUs to other indices.
	KindRenumbered Kind = "renumbered"
	// KindOperator is for what an operator had done by hand, apart from items of reports:
	// those have By.
	KindOperator Kind = "operator"
	// KindExtension is in logs of earlier versions: a user asked to keep an attachment, and Action is
	// extended or not-extended.
	KindExtension Kind = "extension"
	// KindHook is for an event that a hook got, or could not be given.
	KindHook Kind = "hook"
	// KindController is of earlier versions: for another controller that enforced the same hosts.
	KindController Kind = "controller"
	// KindGuard is for what the kernel guard of a host is told or does, KindDenied for a
	// user who opened a device that isn't attached to them.
	KindGuard  Kind = "guard"
	KindDenied Kind = "denied"
)

// The actions of KindDenied on a host.
const (
	ActionDenied    = "denied"
	ActionWouldDeny = "would-deny" // it was allowed, since the guard only watched
)

// Channel is how a user is notified, or a hook.
type Channel string

// The channels. A record of KindNotified without one is of an older genv: ChannelTerminal.
const (
	ChannelTerminal Channel = "terminal"
	ChannelLogin    Channel = "login" // kept on the host for the user's next login
	ChannelMail     Channel = "mail"
	ChannelWebhook  Channel = "webhook"
	ChannelCommand  Channel = "command"
)

// kinds are all kinds; Check recognizes a log by them.
var kinds = []Kind{KindFinding, KindCleared, KindReport, KindOutcome, KindNotified, KindOverLimit, KindFailed, KindDuplicate, KindRenumbered, KindOperator, KindHook, KindController, KindExtension, KindGuard, KindDenied}

// Record is a line of the log. Fields that a kind doesn't use are empty. All
// records of one finding have its ID, and all records of one report to one host
// have its Report; outcomes and report items have both.
type Record struct {
	Time  time.Time `json:"time"`
	Kind  Kind      `json:"kind"`
	Run   string    `json:"run,omitempty"`   // one run of a controller
	Cycle int       `json:"cycle,omitempty"` // within that run
	// IDs are the findings that it is about, or that led to it.
	IDs []string `json:"ids,omitempty"`
	// Report is the same for all items that one host was sent in a cycle.
	Report string `json:"report,omitempty"`

	Rule     enforce.Rule      `json:"rule,omitempty"`
	Decision enforce.Decision  `json:"decision,omitempty"`
	Host     snapshot.Hostname `json:"host,omitempty"`
	User     snapshot.Username `json:"user,omitempty"`
	UID      *snapshot.UID     `json:"uid,omitempty"`
	// PID is the process to end; PID and Start together name one process of a boot.
	PID   snapshot.PID       `json:"pid,omitempty"`
	Start snapshot.StartTime `json:"start,omitempty"`
	// Container names the container of the process, and who started it, in words.
	Container string                `json:"container,omitempty"`
	EID       snapshot.EnvID        `json:"eid,omitempty"`
	Device    *snapshot.DeviceIndex `json:"device,omitempty"` // to detach

	Status enforce.Status `json:"status,omitempty"`
	// Text describes the finding or the action in one line, Reason adds details.
	Text   string `json:"text,omitempty"`
	Reason string `json:"reason,omitempty"`
	// Why are the findings that led to it, in plain English.
	Why []string `json:"why,omitempty"`
	// Judged are the lines of the snapshot that were judged, of KindReport.
	Judged []string `json:"judged,omitempty"`
	// Channel is how a user or a hook was notified, and To where: a mail address, a web
	// address without its secret parts, or a program.
	Channel Channel `json:"channel,omitempty"`
	To      string  `json:"to,omitempty"`
	// By is who requested it: the operator, or on a host the account.
	By string `json:"by,omitempty"`
	// Action is what an operator asked for: warn, exempt, unexempt, hold or release; or
	// expired, for an exemption that ended. Of KindExtension it is what was decided.
	Action string `json:"action,omitempty"`
	// Finding is the finding, with at most snapshot.MaxCommand bytes of a command line: a
	// host may report any length, in every cycle.
	Finding *enforce.Finding `json:"finding,omitempty"`
}

// maxText is how much of a text is recorded: some are what a host says.
const maxText = 4096 // bytes

// encode is a record as a line, with its end.
func encode(r *Record) ([]byte, error) {
	short := *r
	short.Text, short.Reason = text.Cut(r.Text, maxText), text.Cut(r.Reason, maxText)
	if len(r.Judged) > 0 {
		short.Judged = slices.Clone(r.Judged[:min(len(r.Judged), decision.MaxLines)])
		for i, line := range short.Judged {
			short.Judged[i] = text.Cut(line, decision.MaxBytes)
		}
	}
	if r.Finding != nil {
		f := *r.Finding // the finding itself stays whole
		f.Command, f.Container = text.Cut(f.Command, snapshot.MaxCommand), text.Cut(f.Container, snapshot.MaxCommand)
		short.Finding = &f
	}
	line, err := json.Marshal(&short)
	if err != nil {
		return nil, fmt.Errorf("encode a record: %w", err)
	}
	return append(line, '\n'), nil
}

// Decided returns the entries about the decision with an id, of a list with notices: an
// action; or the warnings about a finding, and what was done because of it.
func Decided(entries []Entry, id string) []Entry {
	return slices.DeleteFunc(slices.Clone(entries), func(e Entry) bool {
		return e.ID != id && !slices.ContainsFunc(e.IDs, func(finding string) bool { return decision.WarningID(finding) == id })
	})
}

// LastAction returns the last action, of a report, in a list; none if there is none.
func LastAction(entries []Entry) []Entry {
	for i, e := range slices.Backward(entries) {
		if e.Report != "" {
			return entries[i : i+1]
		}
	}
	return nil
}

// Decided is an item of a report, before its outcome is known, as every output shows it.
func (r *Record) Decided() decision.Record {
	e := Entry{
		ID: decision.ID(r.Report, r.PID, r.EID, r.Device), Time: r.Time, Host: r.Host, User: r.User, UID: r.UID,
		Text: r.Text, Why: r.Why, By: r.By, Judged: r.Judged,
	}
	return e.Decision()
}

// Decision is the entry as every output shows it.
func (e *Entry) Decision() decision.Record {
	r := decision.Record{
		ID: e.ID, Time: e.Time, Host: e.Host, User: string(userOfEntry(e)), What: e.Text, Status: e.Status, Reason: e.Reason,
		Why: e.Why, Notified: e.Notified, By: e.By, Judged: e.Judged,
	}
	if e.Action == ActionNotice {
		r.Why, r.Status = nil, cmp.Or(e.Status, "notified")
	}
	return r
}
