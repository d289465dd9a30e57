package policy

import (
	"time"

	"github.com/seed-3119e985/genv/enforce"
	"github.com/seed-3119e985/genv/enforce/guard"
	"github.com/seed-3119e985/genv/snapshot"
	"github.com/seed-3119e985/genv/snapshot/strictyaml"
)

// Value is a setting and where it comes from. The zero Value is not set.
type Value[T any] struct {
	// On is false for a setting that is switched off, and then has no Value.
	On    bool
	Value T
	From  Source
}

// Source is where a value comes from. The zero Source means that there is none.
type Source struct {
	// Place is where it is in the file; zero for a built-in value.
	Place strictyaml.Place
	// By is the part of the file or program, such as "defaults".
	By string
}

// String is the source in plain English, with file and line.
func (s Source) String() string {
	if s.Place.Line == 0 {
		return s.By
	}
	return s.By + ", " + s.Place.String()
}

// Settings are what may differ by host, user and time. A Value whose Source is
// zero is not set.
type Settings struct {
	// The rules, which may differ by host and time. Their Value is not used.
	NonEnvProcesses Value[bool]
	EnvDevices      Value[bool]
	EnvMemory       Value[bool]
	// SudoUsers accepts processes of other users that descend from a process of the
	// environment. UnknownOutside treats processes that overwrote their environ as
	// outside any environment. Both may differ by host and time.
	SudoUsers      Value[bool]
	UnknownOutside Value[bool]
	// EndUnreadable ends processes that their users have made unreadable.
	EndUnreadable Value[bool]
	// LeaveContainers judges no process in a container of root's runtimes.
	LeaveContainers Value[bool]
	// JudgeGraphics judges processes that draw on an active screen.
	JudgeGraphics Value[bool]
	// The caps of a user on all hosts together, which may differ by user and time.
	// On with 0 means that the user may have none.
	MaxDevices Value[int]
	MaxMemory  Value[snapshot.Memory] // of the devices that are attached
	MaxEnvs    Value[int]
	// These may differ by host, user and time. They lead to a detachment only.
	Idle        Value[enforce.Idle]
	MaxDuration Value[time.Duration] // of an attachment
	Warn        Value[enforce.Warn]
	// How processes are ended, which may differ by host and time. With Kill,
	// SIGKILL is sent when Grace is over.
	Grace Value[time.Duration]
	Kill  Value[bool]
	// Guard is how far the kernel guard goes; it may differ by host and time.
	Guard Value[guard.Mode]
	// MaxAge is how old an answer of nvidia-smi may be where none comes in time. It may differ
	// by host and time.
	MaxAge Value[time.Duration]
}
