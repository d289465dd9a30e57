package audit

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"strings"
	"time"

	"github.com/seed-3119e985/genv/enforce"
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
	Status   enforce.Status
	Reason   string   // of the status
	Why      []string // the findings as people read them
	Notified time.Time
	By       string   // the operator who requested it
	Judged   []string // the lines of the snapshot
}

// Lines are the record as people read it: on a controller and on the host, in mail and on
// the web page. Nothing in them needs to be escaped for a terminal.
func (r Decision) Lines() []string {
	lines := []string{"Decision   " + r.ID}
	add := func(name, value string) {
		if value != "" {
			lines = append(lines, fmt.Sprintf("%-10s %s", name, text.OneLine(value)))
		}
	}
	add("Time", clock(r.Time))
	add("Host", string(r.Host))
	add("User", r.User)
	add("What", r.What)
	add("Outcome", r.outcome())
	for i, why := range r.Why {
		add(first(i, "Because"), why)
	}
	add("Notified", clock(r.Notified))
	add("By", r.By)
	for i, line := range r.Judged {
		add(first(i, "Judged"), line)
	}
	return lines
}

func (r Decision) outcome() string {
	return strings.TrimSuffix(cmp.Or(string(r.Status), "under way")+": "+r.Reason, ": ")
}

// first is a name for the first of several lines.
func first(i int, name string) string {
	if i > 0 {
		return ""
	}
	return name
}

// clock is a time as people read it; empty for none.
func clock(t time.Time) string {
	if t.IsZero() {
		return ""
	}
	return t.Local().Format("2006-01-02 15:04:05 MST")
}

// DecisionID is the id of an item of a report: 8 hexadecimal digits. It is made from what the
// controller calls the report and from the process or, if there is a device, the
// attachment, which the record of each machine has. Empty for a report without an ID.
func DecisionID(report string, pid snapshot.PID, eid snapshot.EnvID, device *snapshot.DeviceIndex) string {
	if report == "" {
		return ""
	}
	if device == nil {
		return short("process", report, fmt.Sprint(pid))
	}
	return short("device", report, string(eid), device.String())
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
