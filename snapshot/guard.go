package snapshot

import (
	"slices"

	"github.com/seed-3119e985/genv/snapshot/text"
)

// GuardMode is what the kernel guard of a host does.
type GuardMode string

// The modes that hosts report. Of a host that reports none, or one that isn't among these,
// it is unknown: that is never GuardOff.
const (
	GuardOff     GuardMode = "off"     // every open of a device is allowed
	GuardWatch   GuardMode = "watch"   // what would be denied is reported
	GuardEnforce GuardMode = "enforce" // it is denied
	// GuardUnable: an order to watch or to enforce is in force, and the host can't carry it out.
	GuardUnable GuardMode = "unable"
)

// Guard is what the kernel guard of a host does, as the host says.
type Guard struct {
	Mode GuardMode `json:"mode"`
	// Reason is why the mode is not the one that was ordered last; empty if it is, or if none was. One printable line.
	Reason string `json:"reason,omitempty"`
}

// maxGuardReason is how much of a reason is kept, in bytes.
const maxGuardReason = 1024

// known is the guard if this version knows its mode, with a bounded reason; else nil.
func (g *Guard) known() *Guard {
	if g == nil || !slices.Contains([]GuardMode{GuardOff, GuardWatch, GuardEnforce, GuardUnable}, g.Mode) {
		return nil
	}
	return &Guard{g.Mode, text.OneLine(text.Cut(g.Reason, maxGuardReason))}
}
