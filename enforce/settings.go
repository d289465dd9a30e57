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

// Policy says which rules apply, to whom, where and when. Its answers depend on the arguments alone. It is safe for
// concurrent use. See enforce/policy.
type Policy interface {
	// Settings may be shared by several answers: callers must not change them.
	Settings(Query) *Settings
	// Exempt reports whether no rule may touch a subject, and why.
	Exempt(Subject) (reason string, exempt bool)
	// Caps are those of the list in force at a time, and those that then only count hours; all for the zero time. They
	// are in the list's order. The caller may change them.
	Caps(time.Time) []*Cap
	// ReservationRule is what a person may reserve; nil for nothing. It is unknown while a membership is.
	ReservationRule(snapshot.Username) (rule *snapshot.ReservationRule, known bool)
	// ExemptIndices are the GPUs of a host that are exempt by index, each once, without UUIDs.
	ExemptIndices(snapshot.Hostname) []ExemptGPU
	// Account is the one name under which the policy knows all names of a user's account.
	Account(snapshot.Username) snapshot.Username
	// Names reports whether an override or a cap names an account. Such a system account counts for caps, too.
	Names(snapshot.Username) bool
	Fleet() Fleet
}

// Query asks what applies on a host, for a user, at a time. Rules of a host have no user; a user's caps on all hosts no
// host.
type Query struct {
	Host   snapshot.Hostname
	Labels map[string]string // of the host
	User   snapshot.Username
	At     time.Time
}

// DefaultMaxAge is Settings.MaxAge unless a policy sets it.
const DefaultMaxAge = time.Minute

// Warn is how long a finding is present before it is acted on: the longer of a number of cycles and a time.
type Warn struct {
	Cycles int
	For    time.Duration
	Spread int `json:"-"` // 1,024ths of the last quarter by which somebody's warning ends earlier
}

// Fleet is what applies to the fleet as a whole.
type Fleet struct {
	// PauseCaps blocks the caps while a host doesn't answer. Otherwise its devices don't count, so nobody loses too
	// many.
	PauseCaps   bool
	Limits      safety.Limits
	Interval    time.Duration // between two looks at a host; 0 for a single cycle
	NotifyUsers bool          // of findings, on terminals, by mail or both
	Contact     string        // for questions of users about the policy
	Unprotected []string      // names of daemons that may be ended although their host protects them
}

// Subject is what a policy may exempt: a process, an environment or a device on a host, or a user. Unknown parts are
// empty. User is only set for a user's caps.
type Subject struct {
	Host        snapshot.Hostname
	User        snapshot.Username
	Device      *snapshot.Device
	Environment *snapshot.Environment
	Process     *snapshot.Process
}

// Protects reports whether no rule applies to a process, since its host would always refuse to end it.
func (f *Fleet) Protects(p *snapshot.Process) bool {
	return p.Protected != "" && !slices.Contains(f.Unprotected, p.Protected)
}

// Settings may differ by host, user and time. The zero Settings enforce nothing.
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
	MaxMemory  *snapshot.Memory // of attached devices
	MaxEnvs    *int
	// IgnoreReservations exempts people from that rule: they lose nothing for reservations of others.
	IgnoreReservations bool

	// SudoUsers admits other users' processes to an environment if they descend from one of it, as with sudo -u.
	SudoUsers bool
	// UnknownOutside treats processes that overwrote their environ as outside, unless an ancestor's environment is
	// known.
	UnknownOutside  bool
	LeaveContainers bool // leaves processes in containers of root's runtimes alone
	JudgeGraphics   bool // judges the processes of a desktop like others

	// Warn is the warning of findings. RuleWarns overrides it for single rules; Idle has its own.
	Warn      Warn
	RuleWarns map[Rule]Warn
	Grace     time.Duration       // from SIGTERM to the end of a process
	Kill      bool                // SIGKILL follows after Grace
	Guard     guard.PolicySetting // of a host
	// MaxAge limits the age of an earlier answer of the driver that replaces a late one; 0 to replace none.
	MaxAge time.Duration
}

// Order are the options of an order.
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

// LongestWarn is the longest warning of the rules between which users can move a process.
func (s *Settings) LongestWarn() (longest Warn) {
	for i := range rules {
		if rules[i].isMovable {
			longest = longest.OrLonger(s.WarnOf(Rule(rules[i].Key)))
		}
	}
	return longest
}

// Setting is a value of Settings in a policy.
type Setting struct {
	strictyaml.Setting[Settings]
	Scope Scope
}

// Scope is what a setting may differ by, besides time.
type Scope int

// The parts of a Scope. A setting without ByHost counts on all hosts together.
const (
	ByHost Scope = 1 << iota
	ByUser
)

// By reports whether a setting may differ by all parts of a scope.
func (s *Setting) By(scope Scope) bool { return s.Scope&scope == scope }

// Keys are the settings of the rules, then the modifiers.
func Keys() []Setting {
	list := make([]Setting, 0, len(rules)+len(modifiers))
	for i := range rules {
		if rules[i].Read != nil {
			list = append(list, rules[i].Setting)
		}
	}
	return append(list, modifiers...)
}

// WarnOfRule is the prefix of the key of a rule's own warning.
const WarnOfRule = "warn.rules."

// RuleWarns are the settings of rules' own warnings. That of idle is a part of idle.
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
		time.Second, 10*time.Minute), ByHost}, // the controller waits for orders
	{strictyaml.NewSwitch("kill", func(s *Settings) *bool { return &s.Kill }), ByHost},
	{strictyaml.NewSetting("guard", func(s *Settings) *guard.Mode { return &s.Guard.Mode }, "watch or enforce",
		readGuard, guard.Mode.String), ByHost},
	{strictyaml.NewDuration("max-age", func(s *Settings) *time.Duration { return &s.MaxAge }, "60s", time.Second,
		time.Hour), ByHost},
}

func readGuard(n *strictyaml.Node) guard.Mode {
	m, _ := guard.ParseMode(n.OneOf(guard.Modes()...)) // which reports errors
	return m
}

var warnSetting = strictyaml.NewSetting("warn", func(s *Settings) *Warn { return &s.Warn }, "{for: 10m}", readWarnValue,
	Warn.String)

// newRuleWarn makes the setting of a rule's own warning. Its text is empty if unset.
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

// ReadWarn reads a warning; false means none.
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

// String is the warning as policies write it.
func (w Warn) String() string {
	switch {
	case w == Warn{}:
		return "false"
	case w.Cycles > 0:
		return fmt.Sprintf("{cycles: %d}", w.Cycles)
	}
	return fmt.Sprintf("{for: %s}", text.FormatDuration(w.For))
}

// OrLonger extends the warning to at least another one.
func (w Warn) OrLonger(other Warn) Warn {
	return Warn{max(w.Cycles, other.Cycles), max(w.For, other.For), w.Spread}
}

// Quarter is the minimum warning of a person who is named while a warning already runs for others.
func (w Warn) Quarter() Warn {
	return Warn{Cycles: (w.Cycles + 3) / 4, For: min(w.For, max(w.For/4, 5*time.Minute))}
}
