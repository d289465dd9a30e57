package enforce

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/seed-3119e985/genv/enforce/guard"
	"github.com/seed-3119e985/genv/snapshot/strictyaml"
	"github.com/seed-3119e985/genv/snapshot/text"
)

// Setting is a value of Settings: its key in a policy, and how it is read and written there.
type Setting struct {
	Key   string
	Scope Scope
	Read  func(*Settings, *strictyaml.Node)
	Text  func(*Settings) string
	Copy  func(to, from *Settings)
}

// Scope is what a setting may differ by; every setting may differ by time.
type Scope int

// The parts of a Scope. A setting that doesn't differ by host counts on all hosts together.
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
		list = append(list, rules[i].Setting)
	}
	return append(list, modifiers...)
}

const (
	year   = 365 * 24 * time.Hour
	maxCap = 1_000_000
)

// modifiers are the settings that say how rules are applied.
var modifiers = []Setting{
	newChoice("sudo-users", "allow", "deny", func(s *Settings) *bool { return &s.SudoUsers }),
	newChoice("unknown-environment", "outside", "leave", func(s *Settings) *bool { return &s.UnknownOutside }),
	newChoice("containers", "leave", "judge", func(s *Settings) *bool { return &s.LeaveContainers }),
	newChoice("graphics", "judge", "leave", func(s *Settings) *bool { return &s.JudgeGraphics }),
	newSetting("warn", ByHost|ByUser, func(s *Settings) *Warn { return &s.Warn }, "{for: 10m}", readWarn, warnText),
	newDuration("grace", ByHost, func(s *Settings) *time.Duration { return &s.Grace }, "10s",
		time.Second, 10*time.Minute), // the controller waits while a report is carried out
	newSwitch("kill", func(s *Settings) *bool { return &s.Kill }),
	newSetting("guard", ByHost, func(s *Settings) *guard.Mode { return &s.Guard.Mode }, "watch or enforce", readGuard, guard.Mode.String),
	newDuration("max-age", ByHost, func(s *Settings) *time.Duration { return &s.MaxAge }, "60s", time.Second, time.Hour),
}

// newSetting makes a setting with a value, which `false` switches off: then it is the zero T.
func newSetting[T comparable](
	key string, scope Scope, at func(*Settings) *T, example string, read func(*strictyaml.Node) T, write func(T) string,
) Setting {
	var off T
	return Setting{
		Key: key, Scope: scope,
		Read: func(s *Settings, n *strictyaml.Node) {
			switch *at(s) = off; {
			case !n.IsBool():
				*at(s) = read(n)
			case n.Bool():
				n.Failf("%s: true does not say how; write %s, or false for none", key, example)
			}
		},
		Text: func(s *Settings) string {
			if *at(s) == off {
				return "off"
			}
			return write(*at(s))
		},
		Copy: func(to, from *Settings) { *at(to) = *at(from) },
	}
}

// newOptional makes a setting of which the zero T is a value, too: nil is off.
func newOptional[T any](
	key string, scope Scope, at func(*Settings) **T, example string, read func(*strictyaml.Node) T, write func(T) string,
) Setting {
	return newSetting(key, scope, at, example,
		func(n *strictyaml.Node) *T { value := read(n); return &value }, func(value *T) string { return write(*value) })
}

// newDuration makes a setting that is a duration within bounds.
func newDuration(key string, scope Scope, at func(*Settings) *time.Duration, example string, low, high time.Duration) Setting {
	read := func(n *strictyaml.Node) time.Duration { return n.Duration(low, high) }
	return newSetting(key, scope, at, example, read, text.FormatDuration)
}

// newCap makes a setting that is how many of something a user may have.
func newCap(key string, at func(*Settings) **int, example string) Setting {
	read := func(n *strictyaml.Node) int {
		if strings.HasPrefix(n.Scalar(), "-") {
			n.Failf("a cap of %s is negative; write 0 or more, or false for no cap", n.Scalar())
			return 0
		}
		return n.Int(0, maxCap)
	}
	return newOptional(key, ByUser, at, example, read, strconv.Itoa)
}

// newChoice makes a setting that is one of two words, of which the first switches something on. It
// may differ by host.
func newChoice(key, on, off string, at func(*Settings) *bool) Setting {
	s := newSwitch(key, at)
	s.Read = func(s *Settings, n *strictyaml.Node) { *at(s) = n.OneOf(on, off) == on }
	s.Text = func(s *Settings) string {
		if *at(s) {
			return on
		}
		return off
	}
	return s
}

// newSwitch makes a setting that is on or off, and may differ by host.
func newSwitch(key string, at func(*Settings) *bool) Setting {
	s := newSetting(key, ByHost, at, "", nil, func(bool) string { return "on" })
	s.Read = func(s *Settings, n *strictyaml.Node) { *at(s) = n.Bool() }
	return s
}

func readGuard(n *strictyaml.Node) guard.Mode {
	m, _ := guard.ParseMode(n.OneOf(guard.Modes()...)) // which says what is wrong
	return m
}

func readWarn(n *strictyaml.Node) Warn {
	var warn Warn
	keys := 0
	n.Map(strictyaml.Keys{
		"cycles": func(n *strictyaml.Node) { warn.Cycles = n.Int(1, maxCap); keys++ },
		"for":    func(n *strictyaml.Node) { warn.For = n.Duration(time.Second, year); keys++ },
	})
	if n.IsMap() && keys != 1 {
		n.Failf("warn: write one of {cycles: 3} and {for: 10m}, or false to act at once")
	}
	return warn
}

// warnText is the setting as it is written in a file.
func warnText(w Warn) string {
	if w.Cycles > 0 {
		return fmt.Sprintf("{cycles: %d}", w.Cycles)
	}
	return fmt.Sprintf("{for: %s}", text.FormatDuration(w.For))
}
