package audit

import (
	"cmp"
	"encoding/json"
	"fmt"
	"slices"
	"time"

	"github.com/seed-3119e985/genv/enforce"
	"github.com/seed-3119e985/genv/enforce/order"
	"github.com/seed-3119e985/genv/snapshot"
	"github.com/seed-3119e985/genv/snapshot/text"
)

// RecordKind is the subject of a record. The texts appear in JSON.
type RecordKind string

// The kinds.
const (
	KindFinding   RecordKind = "finding"   // seen for the first time, or decided on again
	KindCleared   RecordKind = "cleared"   // a finding does not hold any more
	KindOrder     RecordKind = "report"    // an item of an order that is about to be sent
	KindOutcome   RecordKind = "outcome"   // the outcome of such an item
	KindNotified  RecordKind = "told"      // a user was notified by a channel, or could not be
	KindOverLimit RecordKind = "held"      // a safety limit kept back actions on a user or host
	KindFailed    RecordKind = "failed"    // a host did not answer
	KindDuplicate RecordKind = "duplicate" // two names of the same machine
	KindOperator  RecordKind = "operator"  // what an operator asked for: holds and exemptions
	KindHook      RecordKind = "hook"      // an event that a hook got, or could not be given
	KindGuard     RecordKind = "guard"     // what a host's kernel guard was told or does, when that changes
	KindDenied    RecordKind = "denied"    // on a host: a user opened a GPU that isn't attached to them

	KindExtension  RecordKind = "extension"  // of earlier versions: a user asked to keep an attachment
	KindController RecordKind = "controller" // of earlier versions: another controller enforced the same hosts
)

// The actions of KindDenied.
const (
	ActionDenied    = "denied"
	ActionWouldDeny = "would-deny" // it was allowed, since the guard only watched
)

// Channel is how a user is notified, or a hook.
type Channel string

// The channels. A record of KindNotified without one is from an older genv: ChannelTerminal.
const (
	ChannelTerminal Channel = "terminal"
	ChannelLogin    Channel = "login" // kept on the host for the user's next login
	ChannelMail     Channel = "mail"
	ChannelWebhook  Channel = "webhook"
	ChannelCommand  Channel = "command"
)

// kinds are all kinds. Check recognizes a log by them.
var kinds = []RecordKind{
	KindFinding, KindCleared, KindOrder, KindOutcome, KindNotified, KindOverLimit, KindFailed, KindDuplicate,
	KindOperator, KindHook, KindController, KindExtension, KindGuard, KindDenied,
}

// Record is a line of the log. Unused fields are empty. All records of a finding have its ID, and all of an order to
// one host its Order; outcomes and order items have both.
type Record struct {
	Time  time.Time  `json:"time"`
	Kind  RecordKind `json:"kind"`
	Run   string     `json:"run,omitempty"`    // of a controller, new at each start
	Cycle int        `json:"cycle,omitempty"`  // within that run
	IDs   []string   `json:"ids,omitempty"`    // the findings that it is about; they join all lines of a finding
	Order string     `json:"report,omitempty"` // the same for all that a host was sent in a cycle, also on the host

	Rule      enforce.Rule          `json:"rule,omitempty"`
	Decision  enforce.Decision      `json:"decision,omitempty"`
	Host      snapshot.Hostname     `json:"host,omitempty"`
	User      snapshot.Username     `json:"user,omitempty"`
	UID       *snapshot.UID         `json:"uid,omitempty"`
	PID       snapshot.PID          `json:"pid,omitempty"`       // the process to end
	Start     snapshot.StartTime    `json:"start,omitempty"`     // of the process, in clock ticks after boot
	Container string                `json:"container,omitempty"` // of the process, and who started it, in words
	EID       snapshot.EnvID        `json:"eid,omitempty"`
	Device    *snapshot.DeviceIndex `json:"device,omitempty"` // to detach

	Status  order.OutcomeStatus `json:"status,omitempty"`
	Text    string              `json:"text,omitempty"` // in one line; a notice has several
	Reason  string              `json:"reason,omitempty"`
	Why     []string            `json:"why,omitempty"`     // the findings that led to it, in plain English
	Judged  []string            `json:"judged,omitempty"`  // the lines of the snapshot that were judged, of an order
	Channel Channel             `json:"channel,omitempty"` // how a user or a hook was notified
	Due     time.Time           `json:"due,omitzero"`      // when what a user was warned of is due
	// To is a mail address, a web address without its secret parts, or a program.
	To string `json:"to,omitempty"`
	By string `json:"by,omitempty"` // who requested it: the operator, or on a host the account
	// Action is an operator's: warn, exempt, unexempt, hold or release; expired for an exemption; denied or would-deny.
	Action string `json:"action,omitempty"`
	// Finding is whole, with at most 256 bytes of a command line (snapshot.MaxCommand).
	Finding *enforce.Finding `json:"finding,omitempty"`
}

const maxText = 4096 // bytes of a text that are recorded: some are what a host says

func encode(r *Record) ([]byte, error) {
	short := *r
	short.Text, short.Reason = text.Cut(r.Text, maxText), text.Cut(r.Reason, maxText)
	if len(r.Judged) > 0 {
		short.Judged = slices.Clone(r.Judged[:min(len(r.Judged), MaxJudgedLines)])
		for i, line := range short.Judged {
			short.Judged[i] = text.Cut(line, MaxJudgedBytes)
		}
	}
	if r.Finding != nil {
		f := *r.Finding // the finding itself stays whole
		f.Command, f.Container = text.Cut(f.Command, snapshot.MaxCommand), text.Cut(f.Container, snapshot.MaxCommand)
		f.PrivateCommand = text.Cut(f.PrivateCommand, snapshot.MaxCommand)
		short.Finding = &f
	}
	line, err := json.Marshal(&short)
	if err != nil {
		return nil, fmt.Errorf("encode a record: %w", err)
	}
	return append(line, '\n'), nil
}

// OrderRecords are those of an order's items, in the order of outcomes. s, if not nil, has users' names.
func OrderRecords(host snapshot.Hostname, o order.Order, s *snapshot.Snapshot) []Record {
	records := make([]Record, 0, len(o.Detach)+len(o.Terminate))
	for i := range o.Detach {
		d := &o.Detach[i]
		_, uid := d.Environment.Account()
		records = append(records, Record{
			Kind: KindOrder, IDs: d.Because, Host: host, Device: &d.Device, EID: d.Environment.EID,
			User: d.Environment.Username, UID: uid, Text: d.String(), Why: d.Why, Judged: d.Judged,
		})
	}
	for i := range o.Terminate {
		t := &o.Terminate[i]
		_, uid := t.Process.Reported()
		records = append(records, Record{
			Kind: KindOrder, IDs: t.Because, Host: host, PID: t.Process.PID, Start: t.Process.Start, EID: t.Process.EID,
			Container: t.Process.ContainerText(), UID: uid, User: userOf(&t.Process, s), Text: t.String(), Why: t.Why,
			Judged: t.Judged,
		})
	}
	return records
}

func userOf(p *snapshot.Process, s *snapshot.Snapshot) snapshot.Username {
	if s == nil {
		user, _ := p.Reported()
		return user
	}
	user, uid := p.Account(s.Environment(p.EID))
	return cmp.Or(user, s.NameOf(uid))
}

// OutcomeRecords are the records of outcomes, made from those of the items.
func OutcomeRecords(items []Record, outcomes []order.Outcome) []Record {
	records := make([]Record, len(items))
	for i, r := range items {
		r.Kind, r.Text, r.Judged = KindOutcome, "", nil
		if i < len(outcomes) {
			r.Status, r.Reason = outcomes[i].Status, outcomes[i].Reason
		}
		records[i] = r
	}
	return records
}
