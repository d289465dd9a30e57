package guard

import (
	"fmt"

	"github.com/seed-3119e985/genv/snapshot"
)

// Mode is how far the guard goes.
type Mode int

// The modes, each stricter than the one before.
const (
	Off     Mode = iota // every open is allowed, and none is reported
	Watch               // opens by users without an attachment are allowed and reported
	Enforce             // they are denied and reported
)

// modeNames are the modes as policies, flags and JSON write them.
var modeNames = [...]string{Off: "off", Watch: "watch", Enforce: "enforce"}

// Modes are all modes as they are written, for help and completion.
func Modes() []string { return append([]string(nil), modeNames[:]...) }

// ParseMode returns the mode of this name; an error says which there are.
func ParseMode(name string) (Mode, error) {
	for m, n := range modeNames {
		if n == name {
			return Mode(m), nil
		}
	}
	return Off, fmt.Errorf("%q: expected off, watch or enforce", name)
}

// Valid says whether m is one of the modes.
func (m Mode) Valid() bool { return m >= Off && int(m) < len(modeNames) }

// String is the name of the mode.
func (m Mode) String() string {
	if !m.Valid() {
		return fmt.Sprintf("mode %d", int(m))
	}
	return modeNames[m]
}

// MarshalText writes the mode's name; other values are an error.
func (m Mode) MarshalText() ([]byte, error) {
	if !m.Valid() {
		return nil, fmt.Errorf("%d: expected a mode of the guard", int(m))
	}
	return []byte(modeNames[m]), nil
}

// UnmarshalText reads the mode's name.
func (m *Mode) UnmarshalText(text []byte) (err error) {
	*m, err = ParseMode(string(text))
	return err
}

// Setting is what a policy says about the guard of a host.
type Setting struct {
	Mode Mode
	// These users may open every device; both are empty in mode Off.
	ExemptUsers []snapshot.Username
	ExemptUIDs  []snapshot.UID
}
