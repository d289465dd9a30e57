package enforce

import (
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/seed-3119e985/genv/enforce/guard"
	"github.com/seed-3119e985/genv/enforce/order"
	"github.com/seed-3119e985/genv/enforce/safety"
	"github.com/seed-3119e985/genv/snapshot"
	"github.com/seed-3119e985/genv/snapshot/strictyaml"
	"github.com/seed-3119e985/genv/snapshot/text"
)

// Policy says which rules apply, to whom, where and when. Its answers depend on the arguments alone, and several
// goroutines may ask it at once. See enforce/policy.
type Policy interface {
	// Settings is what applies to a query. Several answers may share it, so it is not to be changed.
	Settings(Query) *Settings
	// Exempt reports whether no rule may touch a subject, and why.
	Exempt(Subject) (reason string, exempt bool)
	// Caps are those of its list that hold at a moment, and those that then only count hours; all for the zero time. They
	// are in the order of the list, and the caller may change them.
	Caps(time.Time) []*Cap
	// ReservationRule is what it lets a person reserve; nil for nothing. It isn't known while a membership isn't.
	ReservationRule(snapshot.Username) (rule *snapshot.ReservationRule, known bool)
	// ExemptIndices are the GPUs of a host that are exempt by an index, each once, without their UUIDs.
	ExemptIndices(snapshot.Hostname) []ExemptGPU
	// Account is the name under which it knows a user: that of all names of one account.
	Account(snapshot.Username) snapshot.Username
	// Names reports whether an override or a cap names an account: it counts for caps even if it is one of the system.
	Names(snapshot.Username) bool
	Fleet() Fleet
}

// Query asks what applies on a host, for a user, at a moment. It has no user for the rules of a host, and no host for a
// user's caps, which count on all hosts together.
type Query struct {
	Host   snapshot.Hostname
	Labels map[string]string // of the host
	User   snapshot.Username
	At     time.Time
}

// DefaultMaxAge is Settings.MaxAge where no policy says it.
const DefaultMaxAge = time.Minute

// Warn is how long a finding has to be there before it is acted on: a number of cycles and a time, the longer one.
type Warn struct {
	Cycles int
	For    time.Duration
	Spread int `json:"-"` // for somebody it is over so many 1,024ths of its last quarter earlier
}

// Fleet is what applies to the fleet as a whole.
type Fleet struct {
	// PauseCaps has the caps wait while a host did not answer. Otherwise its devices don't count: never too many.
	PauseCaps   bool
	Limits      safety.Limits
	Interval    time.Duration // between two looks at a host; 0 for a single cycle
	TellUsers   bool          // of what is wrong: on terminals, by mail or both
	Contact     string        // whom users ask about the policy; empty for none
	Unprotected []string      // names of daemons that may be ended although their host protects them
}

// Subject is what a policy may exempt: a process, an environment or a device on a host, or a user. What it doesn't
// have, or is unknown, is empty. User is set only if the question is about a user's caps.
type Subject struct {
	Host        snapshot.Hostname
	User        snapshot.Username
	Device      *snapshot.Device
	Environment *snapshot.Environment
	Process     *snapshot.Process
}

// Protects reports whether no rule applies to a process: its host would refuse to end it in every cycle.
func (f *Fleet) Protects(p *snapshot.Process) bool {
	return p.Protected != "" && !slices.Contains(f.Unprotected, p.Protected)
}

// Settings are what may differ by host, user and time. The zero Settings enforce nothing.
type Settings struct {
	NonEnvProcesses bool          // terminates processes in no environment that is registered on their host
	CountOutside    bool          // counts processes in no environment for their users, like what is attached
	EnvDevices      bool          // terminates processes that use a device to which their environment isn't attached
	EnvMemory       bool          // terminates processes until their environment is within its capacity, by device
	EndUnreadable   bool          // terminates processes whose user made unreadable what root judges them by
	MaxProcessAge   time.Duration // terminates processes that started longer ago; 0 for never
	Idle            *Idle         // detaches devices that are not used; nil for never
	MaxDuration     time.Duration // detaches what was attached longer ago; 0 for never
	// The caps of a user on all hosts together; nil for none.
	MaxDevices *int
	MaxMemory  *snapshot.Memory // of the devices that are attached
	MaxEnvs    *int
	// IgnoreReservations is for people who are exempt from that rule: nothing is taken for reservations of others.
	IgnoreReservations bool

	// SudoUsers admits other users' processes to an environment if they descend from one of it, as with sudo -u.
	SudoUsers bool
	// UnknownOutside counts processes that overwrote their environ as outside, unless an ancestor's environment is
	// known.
	UnknownOutside  bool
	LeaveContainers bool // leaves processes in containers of root's runtimes alone
	JudgeGraphics   bool // judges the processes of a desktop like others

	// Warn is how long a finding has to be present before anything is done; RuleWarns is that of single rules. Idle has
	// its own.
	Warn      Warn
	RuleWarns map[Rule]Warn
	Grace     time.Duration       // for a process to end after SIGTERM
	Kill      bool                // SIGKILL follows then
	Guard     guard.PolicySetting // the kernel guard of a host
	// MaxAge is how old an answer of the driver may be where none comes in time; 0 for never.
	MaxAge time.Duration
}

// Order is what an order says of how its host ends processes.
func (s *Settings) Order() order.Options {
	return order.Options{GraceMS: s.Grace.Milliseconds(), Kill: s.Kill}
}

// WarnOf is the warning of a rule's findings.
func (s *Settings) WarnOf(rule Rule) Warn {
	if rule == RuleIdle && s.Idle != nil && s.Idle.Warn != nil {
		return *s.Idle.Warn
	}
	if own, ok := s.RuleWarns[rule]; ok {
		return own
	}
	if rule == RuleReservations {
		return Warn{For: 30 * time.Minute}
	}
	return s.Warn
}

// LongestWarn is the longest of the warnings of the rules that a user can move a process between.
func (s *Settings) LongestWarn() (longest Warn) {
	for i := range rules {
		if rules[i].isMovable {
			longest = longest.OrLonger(s.WarnOf(Rule(rules[i].Key)))
		}
	}
	return longest
}

// Setting is a value of Settings, as a policy has it.
type Setting struct {
	strictyaml.Setting[Settings]
	Scope Scope
}

// Scope is what a setting may differ by; all may differ by time.
type Scope int

// The parts of a Scope. Without ByHost a setting counts on all hosts together.
const (
	ByHost Scope = 1 << iota
	ByUser
)

// By reports whether a setting may differ by all of these.
func (s *Setting) By(scope Scope) bool { return s.Scope&scope == scope }

// Keys are the settings of the rules, and then those that say how rules are applied.
func Keys() []Setting {
	list := make([]Setting, 0, len(rules)+len(modifiers))
	for i := range rules {
		if rules[i].Read != nil {
			list = append(list, rules[i].Setting)
		}
	}
	return append(list, modifiers...)
}

// WarnOfRule and a rule are the key of its own warning.
const WarnOfRule = "warn.rules."

// RuleWarns are the settings of rules' own warnings, which a policy has in warn. That of idle is in idle.
func RuleWarns() []Setting {
	var list []Setting
	for i := range rules {
		if rule := Rule(rules[i].Key); rule != RuleIdle {
			list = append(list, Setting{newRuleWarn(rule), rules[i].Scope | ByUser})
		}
	}
	return list
}

const (
	year   = 365 * 24 * time.Hour
	maxCap = 1_000_000
)

// modifiers are the settings that say how rules are applied.
var modifiers = []Setting{
	{strictyaml.NewChoice("sudo-users", "allow", "deny", func(s *Settings) *bool { return &s.SudoUsers }), ByHost},
	{strictyaml.NewChoice("unknown-environment", "outside", "leave",
		func(s *Settings) *bool { return &s.UnknownOutside }), ByHost},
	{
		strictyaml.NewChoice("containers", "leave", "judge", func(s *Settings) *bool { return &s.LeaveContainers }),
		ByHost,
	},
	{strictyaml.NewChoice("graphics", "judge", "leave", func(s *Settings) *bool { return &s.JudgeGraphics }), ByHost},
	{warnSetting, ByHost | ByUser},
	{strictyaml.NewDuration("grace", func(s *Settings) *time.Duration { return &s.Grace }, "10s",
		time.Second, 10*time.Minute), ByHost}, // the controller waits while an order is carried out
	{strictyaml.NewSwitch("kill", func(s *Settings) *bool { return &s.Kill }), ByHost},
	{strictyaml.NewSetting("guard", func(s *Settings) *guard.Mode { return &s.Guard.Mode }, "watch or enforce",
		readGuard, guard.Mode.String), ByHost},
	{strictyaml.NewDuration("max-age", func(s *Settings) *time.Duration { return &s.MaxAge }, "60s", time.Second,
		time.Hour), ByHost},
}

func readGuard(n *strictyaml.Node) guard.Mode {
	m, _ := guard.ParseMode(n.OneOf(guard.Modes()...)) // which says what is wrong
	return m
}

var warnSetting = strictyaml.NewSetting("warn", func(s *Settings) *Warn { return &s.Warn }, "{for: 10m}", readWarnValue,
	Warn.String)

// newRuleWarn makes the setting of a rule's own warning, without a text if it is unset.
func newRuleWarn(rule Rule) strictyaml.Setting[Settings] {
	set := func(s *Settings, warn Warn) {
		if s.RuleWarns = maps.Clone(s.RuleWarns); s.RuleWarns == nil { // others may share it
			s.RuleWarns = make(map[Rule]Warn)
		}
		s.RuleWarns[rule] = warn
	}
	return strictyaml.Setting[Settings]{
		Key:  WarnOfRule + string(rule),
		Read: func(s *Settings, n *strictyaml.Node) { set(s, ReadWarn(n)) },
		Text: func(s *Settings) string {
			warn, own := s.RuleWarns[rule]
			if !own {
				return ""
			}
			return warnSetting.Text(&Settings{Warn: warn})
		},
		Copy: func(to, from *Settings) { set(to, from.RuleWarns[rule]) },
	}
}

// ReadWarn reads a warning, or false for none.
func ReadWarn(n *strictyaml.Node) Warn {
	var s Settings
	warnSetting.Read(&s, n)
	return s.Warn
}

func readWarnValue(n *strictyaml.Node) Warn {
	if !n.IsMap() {
		return Warn{For: n.Duration(time.Second, year)}
	}
	var warn Warn
	keys := 0
	n.Map(strictyaml.Keys{
		"cycles": func(n *strictyaml.Node) { warn.Cycles = n.Int(1, maxCap); keys++ },
		"for":    func(n *strictyaml.Node) { warn.For = n.Duration(time.Second, year); keys++ },
		"rules":  func(n *strictyaml.Node) { n.Failf("the warning of a rule has no rules: remove them"); keys++ },
	})
	if keys != 1 {
		n.Failf("warn: write one of {cycles: 3} and {for: 10m}, or false to act at once")
	}
	return warn
}

// String is the warning as it is written in a file.
func (w Warn) String() string {
	switch {
	case w == Warn{}:
		return "false"
	case w.Cycles > 0:
		return fmt.Sprintf("{cycles: %d}", w.Cycles)
	}
	return fmt.Sprintf("{for: %s}", text.FormatDuration(w.For))
}

// OrLonger is the warning, or as much longer as another one.
func (w Warn) OrLonger(other Warn) Warn {
	return Warn{max(w.Cycles, other.Cycles), max(w.For, other.For), w.Spread}
}

// Quarter is how long a person is warned at least who is named while a warning runs for others.
func (w Warn) Quarter() Warn {
	return Warn{Cycles: (w.Cycles + 3) / 4, For: min(w.For, max(w.For/4, 5*time.Minute))}
}
