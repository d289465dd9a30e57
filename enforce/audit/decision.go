package audit

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"strings"
	"time"

	"github.com/seed-3119e985/genv/enforce/order"
	"github.com/seed-3119e985/genv/snapshot"
	"github.com/seed-3119e985/genv/snapshot/text"
)

// Decision says of a single action why it was decided: with a short id, which is
// the same in the record of a controller and of a host, in mail and on the web page, and
// with the lines of the snapshot that were judged. Fields that are not known are empty.
type Decision struct {
	ID       string
	Time     time.Time
	Host     snapshot.Hostname
	User     string
	What     string // such as "Terminating process 5 …", in a line
	Status   order.Status
	Reason   string   // of the status
	Why      []string // the findings as people read them
	Notified time.Time
	By       string   // the operator who requested it
	Advice   []string // what the user should do
	Judged   []string // the lines of the snapshot
}

// Lines are the record as people read it: on a controller and on the host, in mail and on
// the web page. Nothing in them needs to be escaped for a terminal.
func (r Decision) Lines() []string {
	l := lines{"Decision   " + r.ID}
	l.add("Time", clock(r.Time))
	l.add("Host", string(r.Host))
	l.add("User", r.User)
	l.add("What", r.What)
	l.add("Outcome", r.outcome())
	l.add("Because", r.Why...)
	l.add("Notified", clock(r.Notified))
	l.add("By", r.By)
	l.add("Judged", r.Judged...)
	return l
}

// Answer is what its user asks first: what happened, why, and what to do.
func (r Decision) Answer() []string {
	var l lines
	l.add("What", r.What)
	l.add("Outcome", r.outcome())
	l.add("Because", r.Why...)
	l.add("What to do", r.Advice...)
	l.add("Time", clock(r.Time))
	l.add("Notified", clock(r.Notified))
	l.add("Decision", r.ID)
	return l
}

type lines []string

// add adds values that aren't empty, the first of them with the name.
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

func (r Decision) outcome() string {
	return strings.TrimSuffix(cmp.Or(string(r.Status), "under way")+": "+r.Reason, ": ")
}

// clock is a time as people read it; empty for none.
func clock(t time.Time) string {
	if t.IsZero() {
		return ""
	}
	return t.Local().Format("2006-01-02 15:04:05 MST")
}

// DecisionID is the id of an item of an order: 8 hexadecimal digits. It is made from what the
// controller calls the order and from the process or, if there is a device, the
// attachment, which the record of each machine has. Empty for an order without an ID.
func DecisionID(orderID string, pid snapshot.PID, eid snapshot.EnvID, device *snapshot.DeviceIndex) string {
	if orderID == "" {
		return ""
	}
	if device == nil {
		return short("process", orderID, fmt.Sprint(pid))
	}
	return short("device", orderID, string(eid), device.String())
}

// WarningID is the id of the warnings about a finding. The same finding at another time
// has the same one.
func WarningID(finding string) string { return short("warning", finding) }

// IsDecisionID says whether a text has the form of an id.
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
