package enforce

import (
	"fmt"
	"strings"
	"time"

	"github.com/seed-3119e985/genv/snapshot"
	"github.com/seed-3119e985/genv/snapshot/text"
)

// RuleCaps is about what people have beyond a cap of the policy's list.
const RuleCaps Rule = "caps"

// Cap limits how much of some GPUs some people may have. A policy has a list of caps.
type Cap struct {
	ID    string // names it in findings: its name or, without one, a digest of what it says
	Rule  Rule   // of a cap with a key of its own; empty for one of the list
	Name  string // as people are shown it; empty for none
	Place string // in the policy, as in "policy.yaml:12:5"

	Kind CapKind
	// Limit is how much all people may have together if Together is set, else how much a person may have: the largest
	// that may apply while the person's groups are unknown. about is false if the cap says nothing of the person.
	Limit func(snapshot.Username) (limit CapLimit, about bool)
	// Member says whether the cap is about somebody.
	Member func(snapshot.Username) Membership

	// OnHost and OfModel select its GPUs: by the host with its labels, and by ModelOf. OfModel is nil for all models.
	OnHost  func(host snapshot.Hostname, labels map[string]string) bool
	OfModel func(model string) bool
	Model   string // as OfModel is written; empty for all
	Of      string // its GPUs in words, as in "of model A100*"; empty for all models and labels

	Together  bool // people share it
	PerHost   bool // each host is counted by itself
	Scheduled bool // it holds at some times only
	Resting   bool // it doesn't hold now; a cap of GPU hours still counts them
	// Waiting selects the people for whom GPUs are taken while they wait; nil for a cap that always holds.
	// WaitingAnybody selects everybody: then people lose GPUs only to those who have fewer of the cap's GPUs.
	Waiting        func(snapshot.Username) Membership
	WaitingAnybody bool
	Warn           *Warn // its own; nil for that of the rule
	// Period is when the month or week of CapHours began, and PeriodEnd when it or a cap's schedule ends.
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

// OfBase is the limit for a number of working GPUs.
func (l CapLimit) OfBase(working int64) int64 {
	switch {
	case l.Percent:
		return max(1, working*l.Value/100)
	case l.AllBut:
		return max(0, working-l.Value)
	}
	return l.Value
}

// Membership says whether somebody is in a group; it is unknown while the directory doesn't answer.
type Membership int8

// The memberships.
const (
	NotMember Membership = iota
	Member
	MembershipUnknown
)

// IsAboutModel reports whether a cap is about GPUs of a model. One that names models leaves out an unknown model.
func (c *Cap) IsAboutModel(model string) bool {
	return c.OfModel == nil || model != "" && c.OfModel(model)
}

// Count is how many of the given GPUs, counted by model, the cap is about.
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

// CapExcess is by how much a person, or people together, are over a cap of the policy's list.
type CapExcess struct {
	ID    string `json:"id,omitempty"` // its name, else a digest of what it says
	Name  string `json:"name,omitempty"`
	Of    string `json:"of,omitempty"` // its GPUs, as in "of model A100*"
	Place string `json:"place"`        // in the policy
	// Counts says what Used and Limit are: GPUs, bytes, environments or seconds of GPUs.
	Counts   string    `json:"counts"`
	Used     int64     `json:"used"`
	Limit    int64     `json:"limit"`
	Together bool      `json:"together,omitempty"` // people share it
	Until    time.Time `json:"until,omitzero"`     // when its schedule or period ends
	// Where are the GPUs that count for it; missing for environments.
	Where []CountedGPUs `json:"where,omitempty"`
	// WaitsFor says for whom they are lost, if the cap has a while: "bob waits for 2 GPUs".
	WaitsFor string `json:"waits_for,omitempty"`
	// Why says why just these are lost.
	Why string `json:"why,omitempty"`
}

// CountedGPUs are GPUs of a host that count for a cap.
type CountedGPUs struct {
	Host snapshot.Hostname      `json:"host,omitempty"`
	GPUs []snapshot.DeviceIndex `json:"gpus"`
}

// MaxWhere is how many hosts a finding names.
const MaxWhere = 64

// String is the cap with what counts for it, as in "big: 3 of 2 GPUs of model A100*".
func (e *CapExcess) String() string {
	name, used := "", fmt.Sprint(e.Used)
	if e.Name != "" {
		name = text.Shown(e.Name) + ": "
	}
	if e.Counts == CapMemory.String() || e.OfHours() {
		used = e.Amount(e.Used)
	}
	return name + used + " of " + e.counted(e.Limit)
}

// String is what a cap counts, in JSON.
func (k CapKind) String() string {
	return [...]string{"gpus", "memory", "environments", "gpu-hours"}[k]
}

// Amount is so much of what a cap counts, in words.
func (e *CapExcess) Amount(n int64) string { return text.CapAmount(e.Counts, n) }

// OfHours reports whether they are GPU hours.
func (e *CapExcess) OfHours() bool { return e != nil && e.Counts == CapHours.String() }

func (e *CapExcess) counted(n int64) string {
	return strings.TrimSpace(e.Amount(n) + " " + text.OneLine(e.Of))
}

func (e *CapExcess) line(f *Finding) string {
	if e == nil { // of another version
		return "A cap of the policy is exceeded"
	}
	which := "a cap"
	if e.Name != "" {
		which = "cap " + text.Shown(e.Name)
	}
	where, until := "", ""
	if !e.Until.IsZero() {
		until = " until " + snapshot.When(e.Until)
	}
	if n := len(f.CountedOn); n > 1 {
		where = fmt.Sprintf(" on %d hosts", n)
	}
	if e.OfHours() {
		return fmt.Sprintf("User %s has %s, and %s of the %s that %s allows are used", f.User,
			strings.TrimSpace("GPUs "+text.OneLine(e.Of)), e.Amount(e.Used), e.Amount(e.Limit), which)
	}
	if e.Together {
		return fmt.Sprintf("User %s is to give back GPUs: %sthose who share %s have %s%s, and %s allowed%s", f.User,
			e.whoWaits(), which, e.counted(e.Used), where, e.allowed(), until)
	}
	return fmt.Sprintf("User %s has %s%s, %sand %s allows %s%s", f.User, e.counted(e.Used), where, e.whoWaits(), which,
		e.Amount(e.Limit), until)
}

func (e *CapExcess) whoWaits() string {
	if e.WaitsFor == "" {
		return ""
	}
	return e.WaitsFor + ", "
}

func (e *CapExcess) allowed() string {
	if e.Limit == 1 {
		return e.Amount(e.Limit) + " is"
	}
	return e.Amount(e.Limit) + " are"
}
