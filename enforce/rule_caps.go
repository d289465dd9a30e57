package enforce

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/seed-3119e985/genv/snapshot"
	"github.com/seed-3119e985/genv/snapshot/strictyaml"
	"github.com/seed-3119e985/genv/snapshot/text"
)

// Caps don't count devices that rules of hosts detach.
var capRules = []rule{maxEnvsRule, maxDevicesRule, maxMemoryRule, capsRule, reservationsRule}

// The caps of a user on all hosts together.
const (
	RuleMaxEnvsPerUser    Rule = "max-envs-per-user"
	RuleMaxDevicesPerUser Rule = "max-devices-per-user"
	RuleMaxMemoryPerUser  Rule = "max-memory-per-user"
)

// adviceGiveBack is used if nothing is left to give back, or it is unknown: see Finding.Advice.
const adviceGiveBack = adviceEndJobs + "; in the shell of an environment genv detach --index N gives a GPU back."

const adviceEndJobs = "Before you take more GPUs, end jobs that you need less"

var maxEnvsRule = newCountCap(RuleMaxEnvsPerUser, CapEnvironments, "4", "has %d environments",
	"End environments that you need no more: exit their shells, or end what genv run started.",
	func(s *Settings) **int { return &s.MaxEnvs })

var maxDevicesRule = newCountCap(RuleMaxDevicesPerUser, CapGPUs, "2", "is using %d devices", adviceGiveBack,
	func(s *Settings) **int { return &s.MaxDevices })

// newCountCap makes the rule of a cap on a number of things. what is the text that the user has so many.
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

var capsRule = rule{
	Setting: Setting{ // Settings don't have the list
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

// OwnCaps are the caps with their own keys: of a person, on all hosts. of returns a person's settings.
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

// RuleReservations is about people who have more of a host than reservations of others leave.
const RuleReservations Rule = "reservations"

var reservationsRule = rule{
	Setting: Setting{strictyaml.Setting[Settings]{ // always on, except by exemption
		Key: string(RuleReservations), Copy: func(s, _ *Settings) { s.IgnoreReservations = true },
	}, ByHost | ByUser},
	advice: "End jobs that you need less here, or use another host; genv reserve --list shows what is reserved.",
	line: func(f Finding) string {
		switch {
		case f.Reservation != nil:
			return fmt.Sprintf("User %s: %s", f.User, f.Reservation.Text)
		case f.Cap == nil: // from another version
			return "GPUs are reserved"
		}
		return fmt.Sprintf("User %s is to give back GPUs: %s; others have %s here, and %s left", f.User, f.Cap.Name,
			f.Cap.Amount(f.Cap.Used), f.Cap.allowed())
	},
}

// ReservationTrouble is a problem of a reservation. Its owner is notified.
type ReservationTrouble struct {
	ID      string `json:"id"`
	Kind    string `json:"kind"`    // too-many, too-few-gpus or lapsed
	Text    string `json:"text"`    // begins with "reservation"
	Follows string `json:"follows"` // the consequence for the owner
}

// The kinds of a ReservationTrouble.
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
