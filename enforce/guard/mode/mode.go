// Package mode names how far the kernel guard goes: it is off, it reports, or it denies. It
// is apart from package kernel so that the policy and the protocol can name a mode without
// the code that talks to the kernel. It is pure.
//
//	m, err := mode.Parse("watch")
package mode

import "fmt"

// Mode is how far the guard goes.
type Mode int

// The modes, each stricter than the one before.
const (
	Off     Mode = iota // every open is allowed, and none is reported
	Watch               // opens by users without an attachment are allowed and reported
	Enforce             // they are denied and reported
)

// names are the modes as policies, flags and JSON write them.
var names = [...]string{Off: "off", Watch: "watch", Enforce: "enforce"}

// Names are all modes as they are written, for help and completion.
func Names() []string { return append([]string(nil), names[:]...) }

// Parse returns the mode of this name; an error says which there are.
func Parse(name string) (Mode, error) {
	for m, n := range names {
		if n == name {
			return Mode(m), nil
		}
	}
	return Off, fmt.Errorf("%q: expected off, watch or enforce", name)
}

// Valid says whether m is one of the modes.
func (m Mode) Valid() bool { return m >= Off && int(m) < len(names) }

// String is the name of the mode.
func (m Mode) String() string {
	if !m.Valid() {
		return fmt.Sprintf("mode %d", int(m))
	}
	return names[m]
}

// MarshalText writes the mode's name; other values are an error.
func (m Mode) MarshalText() ([]byte, error) {
	if !m.Valid() {
		return nil, fmt.Errorf("%d: expected a mode of the guard", int(m))
	}
	return []byte(names[m]), nil
}

// UnmarshalText reads the mode's name.
func (m *Mode) UnmarshalText(text []byte) (err error) {
	*m, err = Parse(string(text))
	return err
}
