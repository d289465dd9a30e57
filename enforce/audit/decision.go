package audit

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/seed-3119e985/genv/snapshot"
	"github.com/seed-3119e985/genv/snapshot/text"
)

// Lines are for people, safe for a terminal. The ID is the same on hosts, in mail and on the page.
func (e *HistoryEntry) Lines() []string {
	l := lines{"Decision   " + e.ID}
	l.add("Time", clock(e.Time))
	l.add("Host", string(e.Host))
	l.add("User", string(e.UserOrUID()))
	l.add("What", e.Text)
	l.add("Outcome", e.outcome())
	l.add("Because", e.because()...)
	l.add("Notified", clock(e.Notified))
	l.add("By", e.By)
	l.add("Judged", e.Judged...)
	return l
}

// Answer says what happened, why, and what to do.
func (e *HistoryEntry) Answer(now time.Time) []string {
	var l lines
	// The lines of an order are 1.4.3's.
	plain := strings.ReplaceAll(e.Text, " from environment "+snapshot.NoEnvironment+" ", " in no environment ")
	said := strings.Split(plain, "\n")
	due := clock(e.Due)
	if left := e.Due.Sub(now); left > 0 { // what was said counts from then
		due += ", in " + text.ShortDuration(left)
	}
	at := clock(e.Time)
	if due != "" && len(e.IDs) == 1 && len(said) > 2 { // a warning of one finding
		l.add("Warned", at)
		at = ""
		l.add("What", said[0])
		l.add("Follows", said[1])
		l.add("Due", due)
		l.add("What to do", said[2:]...)
	} else {
		l.add("What", said...)
		l.add("Due", due)
		l.add("Outcome", e.outcome())
	}
	l.add("Because", e.because()...)
	l.add("What to do", e.advice()...)
	l.add("Time", at)
	l.add("Notified", clock(e.Notified))
	l.add("Decision", e.ID)
	return l
}

type lines []string

func (l *lines) add(name string, values ...string) {
	for i, value := range values {
		if i > 0 {
			name = ""
		}
		if value != "" {
			*l = append(*l, fmt.Sprintf("%-10s %s", name, text.OneLine(value)))
		}
	}
}

func (e *HistoryEntry) outcome() string {
	status := e.Status
	if status == "" && e.Action == ActionNotice {
		status = "notified"
	}
	return strings.TrimSuffix(cmp.Or(string(status), "under way")+": "+e.Reason, ": ")
}

// The text of a notice already has its findings.
func (e *HistoryEntry) because() []string {
	if e.Action == ActionNotice {
		return nil
	}
	return e.Why
}

func (e *HistoryEntry) advice() (list []string) {
	for _, rule := range e.Rules {
		advice := rule.Advice()
		if e.PID != 0 {
			advice = rule.AdviceAfter(e.EID)
		}
		if e.Action != ActionNotice && !slices.Contains(list, advice) {
			list = append(list, advice)
		}
	}
	return list
}

func clock(t time.Time) string {
	if t.IsZero() {
		return ""
	}
	return t.Local().Format("2006-01-02 15:04:05 MST")
}

// DecisionID is the ID of an item of an order: 8 hexadecimal digits; empty without an order ID. It derives from data in
// each machine's record: the order's ID and the process or, with a device, the attachment.
func DecisionID(orderID string, pid snapshot.PID, eid snapshot.EnvID, device *snapshot.DeviceIndex) string {
	if orderID == "" {
		return ""
	}
	if device == nil {
		return short("process", orderID, fmt.Sprint(pid))
	}
	return short("device", orderID, string(eid), device.String())
}

// WarningID is the ID of all warnings about a finding, at any time.
func WarningID(finding string) string { return short("warning", finding) }

// IsDecisionID says whether a text has the form of an ID.
func IsDecisionID(text string) bool {
	decoded, err := hex.DecodeString(text)
	return err == nil && len(decoded) == idBytes
}

const idBytes = 4

func short(parts ...string) string {
	sum := sha256.New()
	for _, part := range parts {
		fmt.Fprintf(sum, "%d:%s,", len(part), part)
	}
	return hex.EncodeToString(sum.Sum(nil)[:idBytes])
}
