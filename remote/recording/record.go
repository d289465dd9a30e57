package recording

import (
	"errors"
	"time"

	"github.com/seed-3119e985/genv/enforce/policy"
	"github.com/seed-3119e985/genv/remote/operator"
	"github.com/seed-3119e985/genv/snapshot"
)

// Schema is the version of the format. A reader refuses another one.
const Schema = "genv.recording/1"

// Header is what a file is about.
type Header struct {
	Schema  string `json:"schema"`
	Version string `json:"version,omitempty"` // of genv
	// Zone is the time zone of the controller, and Offset its seconds east of UTC at the beginning.
	Zone   string        `json:"zone,omitempty"`
	Offset int           `json:"utc_offset_s"`
	Begun  time.Time     `json:"begun"`
	Every  time.Duration `json:"interval_ns,omitempty"` // between two full cycles
}

// Policy is the policy that a controller had, with the flags that override it.
type Policy struct {
	Path      string                                `json:"path,omitempty"` // empty without a file
	Text      string                                `json:"text,omitempty"`
	Flags     *policy.Settings                      `json:"flags,omitempty"`
	UserFlags map[snapshot.Username]policy.Settings `json:"user_flags,omitempty"`
	Digest    string                                `json:"digest"` // see policy.File.Digest
}

// Judgement is a call of enforce.Judge, or of early.Judge: what was judged, and when. It has what
// is needed to judge it again.
type Judgement struct {
	Run    string
	Number int
	// Early counts the judgements between two full cycles; 0 for a full one.
	Early int
	Time  time.Time
	// DryRun says that nothing was done.
	DryRun bool
	Policy *Policy
	// Operator is what operators asked for.
	Operator operator.State
	// Boosts are how many devices more than the caps of the policy users might have.
	Boosts map[snapshot.Username]int
	// Cluster is all hosts, or for an early judgement the hosts that were asked.
	Cluster snapshot.Cluster
	// Digest is of the plan and the messages that came of it.
	Digest Digest
}

// Gap is a time for which nothing is recorded.
type Gap struct {
	Since time.Time `json:"since"`
	Until time.Time `json:"until"`
	// Judgements is how many were left out.
	Judgements int    `json:"judgements"`
	Because    string `json:"because"`
}

// Step is a Judgement as it is read.
type Step struct {
	Judgement
	// Memory is what to change in the memory that the judgement before returned; nil for nothing.
	Memory *MemoryChange
	// Gaps are the times before it for which nothing is recorded.
	Gaps []Gap
	// Header is of the file.
	Header *Header
}

// The kinds of records. A reader skips and counts others.
const (
	kindHeader   = 'h' // a Header, as JSON
	kindPolicy   = 'p' // a Policy, as JSON
	kindOperator = 'o' // an operator.State, as JSON
	kindBoosts   = 'b' // the Boosts of a Judgement, as JSON
	kindHosts    = 'n' // all hosts with their labels, as JSON; others refer to them by number
	kindMemory   = 'm' // a MemoryChange, as JSON
	kindGap      = 'g' // a Gap, as JSON
	kindSnapshot = 's' // the number of a host, and what changed in its snapshot
	kindSilent   = 'e' // the number of a host, and why it did not answer
	kindJudged   = 'j' // what was judged
	kindEnd      = 'z' // the file is complete
)

// hostName is a host of kindHosts.
type hostName struct {
	Name   snapshot.Hostname `json:"name"`
	Labels map[string]string `json:"labels,omitempty"`
}

// Flags of kindJudged.
const flagDryRun = 1

// silent is the error of a host that did not answer.
type silent string

// Error implements error.
func (s silent) Error() string { return "the host did not answer: " + string(s) }

// Kind is the class of the error, as remote.Error has it.
func (s silent) Kind() string { return string(s) }

// kindOf is the class of the error of a host that did not answer, as enforce.Memory has it.
func kindOf(err error) string {
	var classified interface{ Kind() string }
	if errors.As(err, &classified) {
		return classified.Kind()
	}
	return "error"
}
