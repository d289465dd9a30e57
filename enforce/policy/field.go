package policy

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/seed-3119e985/genv/enforce"
	"github.com/seed-3119e985/genv/enforce/guard"
	"github.com/seed-3119e985/genv/snapshot"
	"github.com/seed-3119e985/genv/snapshot/strictyaml"
	"github.com/seed-3119e985/genv/snapshot/text"
)

// scope is what a setting may differ by; every setting may differ by time.
type scope int

const (
	byHost scope = 1 << iota
	byUser
)

// field is a setting: its key in the file, and how to read and show it.
type field struct {
	key   string
	scope scope
	read  func(*Settings, *strictyaml.Node, Source)
	merge func(to, from *Settings) // copies the setting if it is set
	text  func(*Settings) string
	from  func(*Settings) *Source
}

func (f *field) isSet(s *Settings) bool { return *f.from(s) != Source{} }

const (
	year   = 365 * 24 * time.Hour
	maxCap = 1_000_000
)

// fields are the settings in the order in which they are explained.
var fields = []field{
	newSwitch("non-env-processes", func(s *Settings) *Value[bool] { return &s.NonEnvProcesses }),
	newSwitch("env-devices", func(s *Settings) *Value[bool] { return &s.EnvDevices }),
	newSwitch("env-memory", func(s *Settings) *Value[bool] { return &s.EnvMemory }),
	newChoice("sudo-users", "allow", "deny", func(s *Settings) *Value[bool] { return &s.SudoUsers }),
	newChoice("unknown-environment", "outside", "leave", func(s *Settings) *Value[bool] { return &s.UnknownOutside }),
	newChoice("unreadable-processes", "end", "report", func(s *Settings) *Value[bool] { return &s.EndUnreadable }),
	newChoice("containers", "leave", "judge", func(s *Settings) *Value[bool] { return &s.LeaveContainers }),
	newChoice("graphics", "judge", "leave", func(s *Settings) *Value[bool] { return &s.JudgeGraphics }),
	newField("max-devices-per-user", byUser, func(s *Settings) *Value[int] { return &s.MaxDevices },
		form[int]{"2", readCap, strconv.Itoa}),
	newField("max-memory-per-user", byUser, func(s *Settings) *Value[snapshot.Memory] { return &s.MaxMemory },
		form[snapshot.Memory]{"80g", readMemory, snapshot.Memory.String}),
	newField("max-envs-per-user", byUser, func(s *Settings) *Value[int] { return &s.MaxEnvs },
		form[int]{"4", readCap, strconv.Itoa}),
	newField("idle", byHost|byUser, func(s *Settings) *Value[enforce.Idle] { return &s.Idle },
		form[enforce.Idle]{"{after: 2h, below: 5%}", readIdle, idleText}),
	newField("max-duration", byHost|byUser, func(s *Settings) *Value[time.Duration] { return &s.MaxDuration },
		form[time.Duration]{"7d", readDuration, text.FormatDuration}),
	newField("warn", byHost|byUser, func(s *Settings) *Value[enforce.Warn] { return &s.Warn },
		form[enforce.Warn]{"{for: 10m}", readWarn, warnText}),
	newField("grace", byHost, func(s *Settings) *Value[time.Duration] { return &s.Grace },
		form[time.Duration]{"10s", readGrace, text.FormatDuration}),
	newSwitch("kill", func(s *Settings) *Value[bool] { return &s.Kill }),
	newField("guard", byHost, func(s *Settings) *Value[guard.Mode] { return &s.Guard },
		form[guard.Mode]{"watch or enforce", readGuard, guard.Mode.String}),
	newField("max-age", byHost, func(s *Settings) *Value[time.Duration] { return &s.MaxAge },
		form[time.Duration]{"60s", readMaxAge, text.FormatDuration}),
}

// form is how the value of a setting is written.
type form[T any] struct {
	example string
	read    func(*strictyaml.Node) T
	text    func(T) string
}

// newField makes a setting with a value, which `false` switches off.
func newField[T any](key string, scope scope, at func(*Settings) *Value[T], form form[T]) field {
	return field{
		key: key, scope: scope,
		read: func(s *Settings, n *strictyaml.Node, from Source) {
			v := Value[T]{From: from}
			switch {
			case !n.IsBool():
				v.On, v.Value = true, form.read(n)
			case n.Bool():
				n.Failf("%s: true does not say how; write %s, or false for none", key, form.example)
			}
			*at(s) = v
		},
		merge: func(to, from *Settings) {
			if v := at(from); v.From != (Source{}) {
				*at(to) = *v
			}
		},
		text: func(s *Settings) string {
			if v := at(s); v.On {
				return form.text(v.Value)
			}
			return "off"
		},
		from: func(s *Settings) *Source { return &at(s).From },
	}
}

// newSwitch makes a setting that is on or off, and may differ by host.
func newSwitch(key string, at func(*Settings) *Value[bool]) field {
	f := newField(key, byHost, at, form[bool]{})
	f.read = func(s *Settings, n *strictyaml.Node, from Source) { *at(s) = onOff(n.Bool(), from) }
	f.text = func(s *Settings) string { return onOffText(*at(s), "on", "off") }
	return f
}

// newChoice makes a setting that is one of two words, of which the first
// switches something on.
func newChoice(key, on, off string, at func(*Settings) *Value[bool]) field {
	f := newSwitch(key, at)
	f.read = func(s *Settings, n *strictyaml.Node, from Source) { *at(s) = onOff(n.OneOf(on, off) == on, from) }
	f.text = func(s *Settings) string { return onOffText(*at(s), on, off) }
	return f
}

func onOff(on bool, from Source) Value[bool] { return Value[bool]{On: on, Value: on, From: from} }

func onOffText(v Value[bool], on, off string) string {
	if v.On {
		return on
	}
	return off
}

// readSettings reads a mapping of settings. It refuses those that may not differ
// by what an override selects.
func (r *reader) readSettings(n *strictyaml.Node, s *Settings, selects scope, by string) {
	keys := strictyaml.Keys{}
	for _, f := range fields {
		keys[f.key] = func(n *strictyaml.Node) {
			switch {
			case selects&byHost > f.scope&byHost:
				n.Failf("%s counts on all hosts together and cannot differ by host; select users, or move it to `defaults:`", f.key)
			case selects&byUser > f.scope&byUser:
				n.Failf("%s cannot differ by user; select hosts, or put the users under `exempt:`", f.key)
			default:
				f.read(s, n, Source{Place: n.Place(), By: by})
			}
		}
	}
	n.Map(keys, strictyaml.Keys{"extend": r.ignore("extend", useSchedules)})
}

func readCap(n *strictyaml.Node) int {
	if strings.HasPrefix(n.Scalar(), "-") {
		n.Failf("a cap of %s is negative; write 0 or more, or false for no cap", n.Scalar())
		return 0
	}
	return n.Int(0, maxCap)
}

func readMemory(n *strictyaml.Node) snapshot.Memory {
	m, err := snapshot.ParseMemory(n.Scalar())
	if err != nil {
		n.Failf("%v, or false for no cap", err)
	}
	return m
}

func readDuration(n *strictyaml.Node) time.Duration { return n.Duration(time.Minute, year) }

func readGuard(n *strictyaml.Node) guard.Mode {
	m, _ := guard.ParseMode(n.OneOf(guard.Modes()...)) // which says what is wrong
	return m
}

// readGrace has a low maximum: the controller waits while a report is carried out.
func readGrace(n *strictyaml.Node) time.Duration { return n.Duration(time.Second, 10*time.Minute) }

func readMaxAge(n *strictyaml.Node) time.Duration { return n.Duration(time.Second, time.Hour) }

func readIdle(n *strictyaml.Node) enforce.Idle {
	var idle enforce.Idle
	hasAfter := false
	n.Map(strictyaml.Keys{
		"after": func(n *strictyaml.Node) { hasAfter, idle.After = true, n.Duration(time.Minute, year) },
		"below": func(n *strictyaml.Node) { idle.Below = readPercent(n) },
	})
	if n.IsMap() && !hasAfter {
		n.Failf("idle: the time is missing; write it as {after: 2h}")
	}
	return idle
}

func readPercent(n *strictyaml.Node) int {
	text := n.Scalar()
	p, err := strconv.Atoi(strings.TrimSuffix(text, "%"))
	if err != nil || p < 0 || p > 100 {
		n.Failf("%q is not a percentage; write it as 5%%", text)
		return 0
	}
	return p
}

// idleText is the setting as it is written in a file.
func idleText(i enforce.Idle) string {
	if i.Below == 0 {
		return fmt.Sprintf("{after: %s}", text.FormatDuration(i.After))
	}
	return fmt.Sprintf("{after: %s, below: %d%%}", text.FormatDuration(i.After), i.Below)
}

func readWarn(n *strictyaml.Node) enforce.Warn {
	var warn enforce.Warn
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
func warnText(w enforce.Warn) string {
	if w.Cycles > 0 {
		return fmt.Sprintf("{cycles: %d}", w.Cycles)
	}
	return fmt.Sprintf("{for: %s}", text.FormatDuration(w.For))
}
