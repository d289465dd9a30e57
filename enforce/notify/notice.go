package notify

import (
	"fmt"
	"strings"
	"time"

	"github.com/seed-3119e985/genv/snapshot/text"
)

// Notice is what one user is told in a mail.
type Notice struct {
	User     string // name of the account
	Contact  string // who to ask; empty for none
	Findings []NoticeItem
	// More is how many findings are left out, since there were too many.
	More int
	// Digest says that these findings were collected, and are not news of this minute.
	Digest bool
}

// NoticeItem is a violated rule, or what an operator wrote, as a notice has it. Texts
// are empty where they don't apply.
type NoticeItem struct {
	ID   string `json:"id"`
	Host string `json:"host,omitempty"`
	Rule string `json:"rule,omitempty"` // as in the policy; empty for what an operator wrote
	// Text says in one line what is wrong.
	Text string `json:"text"`
	// Command is the command line of the process, quoted.
	Command string `json:"command,omitempty"`
	// Follows is what will be done, as in "process 4242 will be ended".
	Follows string `json:"follows,omitempty"`
	// Pending says that it is not done yet. Due is the earliest time, if it is known.
	Pending bool      `json:"pending,omitempty"`
	Due     time.Time `json:"due,omitzero"`
	Waits   bool      `json:"waits,omitempty"` // until all hosts answer
	Since   time.Time `json:"since,omitzero"`  // when it was first seen
	At      time.Time `json:"at"`              // when this was written
	// Advice is what the user should do, in a sentence or two.
	Advice string `json:"advice,omitempty"`
	// Decisions are the ids of what is done, or of the warning: `genv why ID` explains them.
	// Record is what is recorded of the first action, line by line.
	Decisions []string `json:"decisions,omitempty"`
	Record    []string `json:"record,omitempty"`
}

// TestText is what an administrator's test of notices says, whatever else is in it.
const TestText = "This is a test of genv's notices. Nothing is wrong, and nothing will be done."

// maxCommand is how many characters of a command line a mail shows.
const maxCommand = 200

// QuotedCommand is a command line as a notice shows it: quoted, so that it can't look like a
// part of the notice. Empty for none.
func QuotedCommand(line string) string {
	if line == "" {
		return ""
	}
	return text.Quoted(strings.Join(strings.Fields(line), " "), maxCommand)
}

// Hosts are the hosts of the findings, each once, in their order.
func (n Notice) Hosts() string {
	var hosts []string
	seen := make(map[string]bool)
	for i := range n.Findings {
		if h := n.Findings[i].Host; h != "" && !seen[h] {
			seen[h] = true
			hosts = append(hosts, h)
		}
	}
	const most = 3
	if len(hosts) > most {
		return fmt.Sprintf("%s and %d more hosts", strings.Join(hosts[:most], ", "), len(hosts)-most)
	}
	return strings.Join(hosts, ", ")
}

// Outcome says what happens and when, in a sentence.
func (f NoticeItem) Outcome() string {
	switch {
	case f.Follows == "":
		return ""
	case !f.Pending:
		return fmt.Sprintf("At %s: %s.", Clock(f.At), f.Follows)
	case f.Waits:
		return fmt.Sprintf("Unless this changes, once all hosts answer: %s.", f.Follows)
	case f.Due.After(f.At):
		return fmt.Sprintf("Unless this changes, at %s: %s.", Clock(f.Due), f.Follows)
	}
	return fmt.Sprintf("Unless this changes soon: %s.", f.Follows)
}

// Clock is a time as people read it, with its zone.
func Clock(t time.Time) string { return t.Local().Format("2006-01-02 15:04 MST") }
