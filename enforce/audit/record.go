package audit

import (
	"encoding/json"
	"fmt"
	"time"

	"github.com/seed-3119e985/genv/enforce"
	"github.com/seed-3119e985/genv/snapshot"
)

// Kind is what a record tells of. The texts appear in JSON.
type Kind string

// The kinds.
const (
	KindFinding   Kind = "finding" // seen for the first time, or decided on again
	KindCleared   Kind = "cleared" // a finding is there no more
	KindReport    Kind = "report"  // an item of a report that is about to be sent
	KindOutcome   Kind = "outcome" // what came of it
	KindNotified  Kind = "told"    // a user was told, or could not be
	KindOverLimit Kind = "held"    // safety limits held actions back, against a user or on a host
	KindFailed    Kind = "failed"  // a host did not answer
	// KindDuplicate says that two names turned out to be the same machine.
	KindDuplicate Kind = "duplicate"
)

// kinds are all of them: Check recognizes a log by them.
var kinds = []Kind{KindFinding, KindCleared, KindReport, KindOutcome, KindNotified, KindOverLimit, KindFailed, KindDuplicate}

// Record is a line of the log. Fields that a kind has no use for are empty.
// Every line of one finding has its ID, every line of one report to one host
// its Report; outcomes and report items have both.
type Record struct {
	Time  time.Time `json:"time"`
	Kind  Kind      `json:"kind"`
	Run   string    `json:"run,omitempty"`   // of a controller, as long as it runs
	Cycle int       `json:"cycle,omitempty"` // of that run
	// IDs are the findings that it is about, or because of which it was done.
	IDs []string `json:"ids,omitempty"`
	// Report is the same for all items of what one host was sent in a cycle.
	Report string `json:"report,omitempty"`

	Rule     enforce.Rule      `json:"rule,omitempty"`
	Decision enforce.Decision  `json:"decision,omitempty"`
	Host     snapshot.Hostname `json:"host,omitempty"`
	User     snapshot.Username `json:"user,omitempty"`
	UID      *snapshot.UID     `json:"uid,omitempty"`
	// PID is the process to end; with Start it is one process of a boot.
	PID    snapshot.PID          `json:"pid,omitempty"`
	Start  snapshot.StartTime    `json:"start,omitempty"`
	EID    snapshot.EnvID        `json:"eid,omitempty"`
	Device *snapshot.DeviceIndex `json:"device,omitempty"` // to detach

	Status enforce.Status `json:"status,omitempty"`
	// Text is the finding's or the action's line, and Reason says more.
	Text   string `json:"text,omitempty"`
	Reason string `json:"reason,omitempty"`
	// Why are the findings because of which it was done, as people read them.
	Why []string `json:"why,omitempty"`
	// By is the account that had a host do it.
	By string `json:"by,omitempty"`
	// Finding is the finding in full.
	Finding *enforce.Finding `json:"finding,omitempty"`
}

func encode(records []Record) ([]byte, error) {
	var lines []byte
	for i := range records {
		line, err := json.Marshal(&records[i])
		if err != nil {
			return nil, fmt.Errorf("encode a record: %w", err)
		}
		lines = append(append(lines, line...), '\n')
	}
	return lines, nil
}
