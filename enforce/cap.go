package enforce

import (
	"fmt"
	"strings"
	"time"

	"github.com/seed-3119e985/genv/snapshot"
	"github.com/seed-3119e985/genv/snapshot/text"
)

// RuleCaps is the rule of the policy's list of caps.
const RuleCaps Rule = "caps"

// Cap limits how much of some GPUs some people may have.
type Cap struct {
	ID    string // its name or, without one, a digest of its content; part of the IDs of findings
	Rule  Rule   // of a cap with its own key; empty for one of the list
	Name  string // empty for none
	Place string // in the policy, such as "policy.yaml:12:5"

	Kind CapKind
	// Limit is what all people together may have with Together, otherwise what a person may have: the largest possible
	// limit while the person's groups are unknown. about is false if the cap doesn't apply.
	Limit  func(snapshot.Username) (limit CapLimit, about bool)
	Member func(snapshot.Username) Membership

	// OnHost and OfModel select the GPUs, by host and labels, and by ModelOf. A nil OfModel selects all.
	OnHost  func(host snapshot.Hostname, labels map[string]string) bool
	OfModel func(model string) bool
	Model   string // the pattern of OfModel; empty for all
	Of      string // the GPUs in words, such as "of model A100*"; empty for all

	Together  bool // people share the limit
	PerHost   bool // each host is counted separately
	Scheduled bool // it has a schedule
	Inactive  bool // its schedule excludes the present; a cap of GPU hours still counts them
	// Waiting selects the people who may get GPUs of others while they wait; nil for a cap that is always in force.
	// With WaitingAnybody, only people with more of the cap's GPUs lose some.
	Waiting        func(snapshot.Username) Membership
	WaitingAnybody bool
	Warn           *Warn // nil for that of the rule
	// Period is the start of the month or week of CapHours. PeriodEnd is the end of it or of the schedule.
	Period, PeriodEnd time.Time
}

// CapKind is what a cap counts.
type CapKind int

// The kinds of caps.
const (
	CapGPUs   CapKind = iota
	CapMemory         // bytes
	CapEnvironments
	CapHours // of GPUs, in seconds
)

// CapLimit is how much a cap allows; zero allows nothing.
type CapLimit struct {
	Value   int64 // GPUs, bytes, environments or seconds
	Percent bool  // Value is a percentage of the working GPUs
	AllBut  bool  // Value is how many of the working GPUs to leave
}

// OfBase returns the limit for a number of working GPUs.
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

// The memberships. MembershipUnknown: the directory doesn't answer.
const (
	NotMember Membership = iota
	Member
	MembershipUnknown
)

// IsAboutModel reports whether the cap covers a model. A pattern matches no unknown model.
func (c *Cap) IsAboutModel(model string) bool {
	return c.OfModel == nil || model != "" && c.OfModel(model)
}

// Count counts the GPUs, given by model, that the cap covers.
func (c *Cap) Count(byModel map[string]int) (n int64) {
	for model, gpus := range byModel {
		if c.IsAboutModel(model) {
			n += int64(gpus)
		}
	}
	return n
}

// ModelOf returns the driver's name of a GPU as policies write it.
func ModelOf(d *snapshot.Device) string { return strings.TrimPrefix(d.Name, "NVIDIA ") }

// CapExcess is by how much a person, or people together, exceed a cap of the list.
type CapExcess struct {
	ID    string `json:"id,omitempty"` // its name, else a digest of what it says
	Name  string `json:"name,omitempty"`
	Of    string `json:"of,omitempty"` // its GPUs, as in "of model A100*"
	Place string `json:"place"`        // in the policy
	// Counts is the unit of Used and Limit: GPUs, bytes, environments or seconds of GPUs.
	Counts   string    `json:"counts"`
	Used     int64     `json:"used"`
	Limit    int64     `json:"limit"`
	Together bool      `json:"together,omitempty"` // people share it
	Until    time.Time `json:"until,omitzero"`     // when its schedule or period ends
	// Where are the counted GPUs; missing for environments.
	Where []CountedGPUs `json:"where,omitempty"`
	// WaitsFor says who gets them, for a cap with while: "bob waits for 2 GPUs".
	WaitsFor string `json:"waits_for,omitempty"`
	// Why says why these GPUs were chosen.
	Why string `json:"why,omitempty"`
}

// CountedGPUs are the GPUs of a host that a cap counts.
type CountedGPUs struct {
	Host snapshot.Hostname      `json:"host,omitempty"`
	GPUs []snapshot.DeviceIndex `json:"gpus"`
}

// MaxWhere is the maximum number of hosts in a finding.
const MaxWhere = 64

// String is the cap and its use, such as "big: 3 of 2 GPUs of model A100*".
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

// String is the kind in JSON.
func (k CapKind) String() string {
	return [...]string{"gpus", "memory", "environments", "gpu-hours"}[k]
}

// Amount formats an amount of what the cap counts.
func (e *CapExcess) Amount(n int64) string { return text.CapAmount(e.Counts, n) }

// OfHours reports whether they are GPU hours.
func (e *CapExcess) OfHours() bool { return e != nil && e.Counts == CapHours.String() }

func (e *CapExcess) counted(n int64) string {
	return strings.TrimSpace(e.Amount(n) + " " + text.OneLine(e.Of))
}

func (e *CapExcess) line(f *Finding) string {
	if e == nil { // from another version
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
