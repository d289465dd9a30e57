package enforce

import (
	"strings"
	"time"

	"github.com/seed-3119e985/genv/snapshot"
)

// RuleCaps is about what people have beyond a cap of the policy's list.
const RuleCaps Rule = "caps"

// Cap says that of some GPUs, some people may have at most so much. A policy has a list of them.
type Cap struct {
	// ID names it in findings: its name or, without one, a digest of what it says.
	ID   string
	Name string // as people are shown it; empty for none
	// Place is where it is in the policy, as in "policy.yaml:12:5".
	Place string

	Kind CapKind
	// Limit is for all people together, if Together is set. Otherwise it is each person's; about is false
	// for somebody for whom the cap says nothing. While a membership is unknown it is the largest that the person
	// might have.
	Limit func(snapshot.Username) (limit CapLimit, about bool)
	// Member says whether somebody is one of those whom it is about.
	Member func(snapshot.Username) Membership

	// OnHost and OfModel select its GPUs: by the host with its labels, and by the driver's name of the GPU without a
	// leading "NVIDIA "; an empty model is an unknown one. OfModel is nil for GPUs of all models.
	OnHost  func(host snapshot.Hostname, labels map[string]string) bool
	OfModel func(model string) bool
	Model   string // as OfModel is written; empty for all

	Together  bool // people share it
	PerHost   bool // each host is counted by itself
	Scheduled bool // it holds at some times only
	Resting   bool // it doesn't hold now: one of GPU hours counts all the same
	// Waiting are those for whom it holds only as far as they wait; nil for a cap that holds always. WaitingAnybody
	// says that these are all: then nothing is taken for somebody who has as many of its GPUs as the one who would
	// lose.
	Waiting        func(snapshot.Username) Membership
	WaitingAnybody bool
	// Warn is its own warning; nil for that of the rule.
	Warn *Warn
	// Period begins the time in which the hours of CapHours count; PeriodEnd ends it.
	Period, PeriodEnd time.Time
}

// CapKind is what a cap counts.
type CapKind int

// What caps count.
const (
	CapGPUs         CapKind = iota
	CapMemory               // bytes
	CapEnvironments         //
	CapHours                // of GPUs, in seconds
)

// CapLimit is how much a cap allows. The zero CapLimit allows nothing.
type CapLimit struct {
	Value   int64 // GPUs, bytes, environments or seconds
	Percent bool  // Value is a percentage of the working GPUs
	AllBut  bool  // Value is how many of the working GPUs are to be left
}

// OfBase is the limit where so many GPUs work.
func (l CapLimit) OfBase(working int64) int64 {
	switch {
	case l.Percent:
		return max(1, working*l.Value/100)
	case l.AllBut:
		return max(0, working-l.Value)
	}
	return l.Value
}

// Membership says whether somebody is in a group.
type Membership int8

// The memberships. One is unknown while the directory doesn't answer.
const (
	NotMember Membership = iota
	Member
	MembershipUnknown
)

// IsAboutModel reports whether a cap is about GPUs of a model; unknown models are in none that names some.
func (c *Cap) IsAboutModel(model string) bool {
	return c.OfModel == nil || model != "" && c.OfModel(model)
}

// Count is how many of some GPUs, by model, it is about.
func (c *Cap) Count(byModel map[string]int) (n int64) {
	for model, gpus := range byModel {
		if c.IsAboutModel(model) {
			n += int64(gpus)
		}
	}
	return n
}

// ModelOf is the driver's name of a GPU as policies write it.
func ModelOf(d *snapshot.Device) string { return strings.TrimPrefix(d.Name, "NVIDIA ") }
