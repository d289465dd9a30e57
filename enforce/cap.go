package enforce

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/seed-3119e985/genv/snapshot"
	"github.com/seed-3119e985/genv/snapshot/strictyaml"
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

// The caps of a user on all hosts together.
const (
	RuleMaxEnvsPerUser    Rule = "max-envs-per-user"
	RuleMaxDevicesPerUser Rule = "max-devices-per-user"
	RuleMaxMemoryPerUser  Rule = "max-memory-per-user"
)

// adviceGiveBack is the advice if nothing is left to give back, or if it is unknown what is: see Finding.Advice.
const adviceGiveBack = adviceEndJobs + "; in the shell of an environment genv detach --index N gives a GPU back."

const adviceEndJobs = "Before you take more GPUs, end jobs that you need less"

var maxEnvsRule = newCountCap(RuleMaxEnvsPerUser, CapEnvironments, "4", "has %d environments",
	"End environments that you need no more: exit their shells, or end what genv run started.",
	func(s *Settings) **int { return &s.MaxEnvs })

var maxDevicesRule = newCountCap(RuleMaxDevicesPerUser, CapGPUs, "2", "is using %d devices", adviceGiveBack,
	func(s *Settings) **int { return &s.MaxDevices })

// newCountCap makes the rule of a cap on the number of something; what says that the user has that many.
func newCountCap(name Rule, counts CapKind, example, what, advice string, at func(*Settings) **int) rule {
	read := func(n *strictyaml.Node) int {
		if strings.HasPrefix(n.Scalar(), "-") {
			n.Failf("a cap of %s is negative; write 0 or more, or false for no cap", n.Scalar())
			return 0
		}
		return n.Int(0, maxCap)
	}
	return rule{
		Setting: Setting{strictyaml.NewOptional(string(name), at, example, read, strconv.Itoa), ByUser},
		advice:  advice,
		line: func(f Finding) string {
			return fmt.Sprintf("User %s "+what+"%s which is %d more than the maximum allowed", f.User, f.Count.Used,
				f.Count.where(), f.Count.Used-f.Count.Limit)
		},
		limit: func(s *Settings) (CapLimit, bool) {
			if n := *at(s); n != nil {
				return CapLimit{Value: int64(max(0, *n))}, true
			}
			return CapLimit{}, false
		},
		counts: counts,
	}
}

var maxMemoryRule = rule{
	Setting: Setting{strictyaml.NewOptional(string(RuleMaxMemoryPerUser),
		func(s *Settings) **snapshot.Memory { return &s.MaxMemory },
		"80g", readMemory, snapshot.Memory.String), ByUser},
	advice: adviceGiveBack,
	line: func(f Finding) string {
		return fmt.Sprintf("User %s is using %s of device memory%s which is %s more than the maximum allowed",
			f.User, text.GiB(f.Memory.UsedBytes), f.Count.where(), text.GiB(f.Memory.bytes()))
	},
	limit: func(s *Settings) (CapLimit, bool) {
		if s.MaxMemory == nil {
			return CapLimit{}, false
		}
		return CapLimit{Value: s.MaxMemory.Bytes()}, true
	},
	counts: CapMemory,
}

// capsRule is the rule of the policy's list of caps; see Cap.
var capsRule = rule{
	Setting: Setting{ // the list isn't kept in Settings
		strictyaml.Setting[Settings]{Key: string(RuleCaps), Copy: func(_, _ *Settings) {}}, ByUser,
	},
	advice: adviceGiveBack,
	line:   func(f Finding) string { return f.Cap.line(&f) },
}

func readMemory(n *strictyaml.Node) snapshot.Memory {
	m, err := snapshot.ParseMemory(n.Scalar())
	if err != nil {
		n.Failf("%v, or false for no cap", err)
	}
	return m
}

// OwnCaps are the caps with a key of their own: of a person, on all hosts. of finds a person's settings.
func OwnCaps(of func(snapshot.Username) *Settings) (list []*Cap) {
	for i := range rules {
		if own := &rules[i]; own.limit != nil {
			list = append(list, &Cap{
				Rule: Rule(own.Key), Kind: own.counts,
				Limit:  func(user snapshot.Username) (CapLimit, bool) { return own.limit(of(user)) },
				Member: func(snapshot.Username) Membership { return Member },
				OnHost: func(snapshot.Hostname, map[string]string) bool { return true },
			})
		}
	}
	return list
}

// RuleReservations is about what people have of a host beyond what reservations of others leave them.
const RuleReservations Rule = "reservations"

var reservationsRule = rule{
	Setting: Setting{strictyaml.Setting[Settings]{ // it is always on; an exemption switches it off
		Key: string(RuleReservations), Copy: func(s, _ *Settings) { s.IgnoreReservations = true },
	}, ByHost | ByUser},
	advice: "End jobs that you need less here, or use another host; genv reserve --list shows what is reserved.",
	line: func(f Finding) string {
		switch {
		case f.Reservation != nil:
			return fmt.Sprintf("User %s: %s", f.User, f.Reservation.Text)
		case f.Cap == nil: // of another version
			return "GPUs are reserved"
		}
		return fmt.Sprintf("User %s is to give back GPUs: %s; others have %s here, and %s left", f.User, f.Cap.Name,
			f.Cap.Amount(f.Cap.Used), f.Cap.allowed())
	},
}

// ReservationTrouble is what is wrong with a reservation. Its owner is told.
type ReservationTrouble struct {
	ID      string `json:"id"`
	Kind    string `json:"kind"`    // too-many, too-few-gpus or lapsed
	Text    string `json:"text"`    // begins with "reservation"
	Follows string `json:"follows"` // what that means for the owner
}

const (
	ReservedTooMany   = "too-many"
	TooFewGPUs        = "too-few-gpus"
	ReservationLapsed = "lapsed"
)

func (t *ReservationTrouble) advice() string {
	switch t.Kind {
	case TooFewGPUs:
		return "Use another host for what it lacks, or cancel it: genv reserve --cancel " + t.ID
	case ReservationLapsed:
		return "Reserve again when you need them, and then attach or use them within 30 minutes."
	}
	return "Cancel one, here or on another host: genv reserve --list shows yours, genv reserve --cancel ID ends one."
}
