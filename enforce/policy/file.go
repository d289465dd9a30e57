package policy

import (
	"time"

	"github.com/seed-3119e985/genv/enforce"
	"github.com/seed-3119e985/genv/snapshot"
	"github.com/seed-3119e985/genv/snapshot/strictyaml"
)

// File is a policy file. The zero File has no rule on; Default is what holds
// without a file.
type File struct {
	// Defaults hold wherever no override says otherwise. What the file leaves
	// out is built in: see Default.
	Defaults  Settings
	Overrides []Override
	// Groups are the users of each group, other groups in it resolved.
	Groups map[string][]string
	// Schedules are the times that overrides may name.
	Schedules map[string]*Schedule
	// Exemptions are under `exempt:`.
	Exemptions Exemptions
	// Unprotected are daemons that may be ended although they are of those that
	// are protected everywhere (enforce.Protected).
	Unprotected []string
	Limits      Limits
	// Unreachable says what caps do while hosts are missing.
	Unreachable Value[Unreachable]
	// TellUsers says whether users are told on their terminals.
	TellUsers Value[bool]
	Hooks     []Hook

	// Flags stand over everything in the file, and UserFlags over Flags. Their
	// Sources name the flag.
	Flags     Settings
	UserFlags map[snapshot.Username]Settings
}

// Value is a setting and where it comes from. The zero Value is one that
// nobody set.
type Value[T any] struct {
	// On says that it holds; a setting that is switched off has no Value.
	On    bool
	Value T
	From  Source
}

// Source is where a value comes from. The zero Source means that there is none.
type Source struct {
	// Place is where it stands in the file; zero for what is built in.
	Place strictyaml.Place
	// By says which part of the file or program it is, as "defaults".
	By string
}

// String is the source in words, with file and line.
func (s Source) String() string {
	if s.Place.Line == 0 {
		return s.By
	}
	return s.By + ", " + s.Place.String()
}

// Settings are what may differ by host, user and time. A Value whose Source is
// zero is not set.
type Settings struct {
	// The rules, which may differ by host and time. Their Value is of no use.
	NonEnvProcesses Value[bool]
	EnvDevices      Value[bool]
	EnvMemory       Value[bool]
	// SudoUsers admits processes of other users that descend from one of the
	// environment, and UnknownOutside counts processes that overwrote their
	// environ as outside. Both may differ by host and time.
	SudoUsers      Value[bool]
	UnknownOutside Value[bool]
	// The caps, which may differ by user and time: they count on all hosts
	// together. On with 0 means that the user may have none.
	MaxDevices Value[int]
	MaxMemory  Value[snapshot.Memory] // of the devices that are attached
	MaxEnvs    Value[int]
	// What may differ by all three. A detachment, never a kill, follows.
	Idle        Value[enforce.Idle]
	MaxDuration Value[time.Duration] // of an attachment
	Warn        Value[enforce.Warn]
	// How processes are ended, which may differ by host and time. Kill says
	// whether SIGKILL follows when Grace is over.
	Grace Value[time.Duration]
	Kill  Value[bool]
}

// Limits hold actions back that are more than was meant. A limit that is not On
// does not hold.
type Limits struct {
	Fleet, PerUser, PerHost Limit
	// Throttle is on for over-limit: throttle, and off for hold.
	Throttle Value[bool]
}

// Limit is how much may be done in a cycle: in the fleet, to a user, on a host.
type Limit struct {
	MaxTerminations Value[int] // processes
	MaxPercent      Value[int] // of the GPU processes
	MaxDetachments  Value[int] // devices
}

// each lists the limits with their keys in the file, in the order in which they
// are explained.
func (l *Limits) each() []limitKey {
	var list []limitKey
	for _, part := range []struct {
		suffix string
		of     *Limit
	}{{"", &l.Fleet}, {"-per-user", &l.PerUser}, {"-per-host", &l.PerHost}} {
		list = append(list,
			limitKey{"max-terminations" + part.suffix, maxCap, &part.of.MaxTerminations},
			limitKey{"max-percent" + part.suffix, 100, &part.of.MaxPercent},
			limitKey{"max-detachments" + part.suffix, maxCap, &part.of.MaxDetachments})
	}
	return list
}

// limitKey is a limit, its key in the file, and the highest value that it takes.
type limitKey struct {
	key  string
	high int
	at   *Value[int]
}

// Unreachable says what caps do while hosts are missing.
type Unreachable string

// The ways with missing hosts.
const (
	IgnoreMissing Unreachable = "ignore" // their devices don't count: too lenient at worst
	PauseCaps     Unreachable = "hold"   // caps wait until they are back
)

// Event is what hooks are told of.
type Event string

// The events.
const (
	OnWarn Event = "warn" // a user is warned
	OnAct  Event = "act"  // a report was carried out, or its outcome is unknown
	OnHold Event = "hold" // a cycle was held back by the limits
)

// Hook is a program or a web address that is told of events, as JSON.
type Hook struct {
	// Command is a program with its arguments, which reads the JSON on stdin;
	// Webhook a URL to which it is posted. One of them is set.
	Command []string
	Webhook string
	On      []Event
	Timeout time.Duration // for each try
	Retries int           // after the first try
	From    Source
}

// Default is the policy without a file, which is what `genv enforce` does
// without a flag; as in 1.4.3, with limits that nobody meets by intention.
func Default() *File {
	builtIn := Source{By: "built in"}
	return &File{
		Defaults: Settings{
			NonEnvProcesses: Value[bool]{From: builtIn},
			EnvDevices:      Value[bool]{On: true, From: builtIn},
			EnvMemory:       Value[bool]{On: true, From: builtIn},
			SudoUsers:       Value[bool]{From: builtIn},
			UnknownOutside:  Value[bool]{From: builtIn},
			MaxDevices:      Value[int]{From: builtIn},
			MaxMemory:       Value[snapshot.Memory]{From: builtIn},
			MaxEnvs:         Value[int]{From: builtIn},
			Idle:            Value[enforce.Idle]{From: builtIn},
			MaxDuration:     Value[time.Duration]{From: builtIn},
			Warn:            Value[enforce.Warn]{From: builtIn},
			Grace:           Value[time.Duration]{On: true, Value: 10 * time.Second, From: builtIn},
			Kill:            Value[bool]{From: builtIn},
		},
		Limits:      builtInLimits(builtIn),
		Unreachable: Value[Unreachable]{On: true, Value: IgnoreMissing, From: builtIn},
		TellUsers:   Value[bool]{On: true, From: builtIn},
	}
}

func builtInLimits(builtIn Source) Limits {
	l := Limits{Throttle: Value[bool]{From: builtIn}}
	for _, limit := range l.each() {
		limit.at.From = builtIn
	}
	l.Fleet.MaxTerminations = Value[int]{On: true, Value: 1000, From: builtIn}
	return l
}

// Get is the value, and whether it holds.
func (v Value[T]) Get() (T, bool) { return v.Value, v.On }
