package snapshot

import (
	"slices"

	"github.com/seed-3119e985/genv/snapshot/text"
)

// Trial is what root's genv found when it tried to read processes by a helper, to signal one, and to write the state.
type Trial struct {
	// Unable is why nothing can be ended there, in one printable line; empty if it can.
	Unable string `json:"unable,omitempty"`
	// State is why nothing can be detached there, likewise: the state can't be written.
	State string `json:"state,omitempty"`
	// NoPidfds says that the kernel, or a filter of system calls, has no pidfds: Linux 5.3 has them.
	NoPidfds bool `json:"no_pidfds,omitempty"`
}

// maxTrialText is how much of a text of a host is kept, in bytes.
const maxTrialText = 1024

// Bounded is the trial with bounded texts; nil for none.
func (t *Trial) Bounded() *Trial {
	if t == nil {
		return nil
	}
	bounded := *t
	for _, word := range []*string{&bounded.Unable, &bounded.State} {
		*word = text.OneLine(text.Cut(*word, maxTrialText))
	}
	return &bounded
}

// Warnings are what people have to know of it, one line each.
func (t *Trial) Warnings() (list []string) {
	if t != nil && t.Unable != "" {
		list = append(list, "nothing can be ended here: "+t.Unable)
	}
	if t != nil && t.State != "" {
		list = append(list, "nothing can be detached here: "+t.State)
	}
	return list
}

// GuardMode is what the kernel guard of a host does.
type GuardMode string

// The modes. If none, or another one, is reported, the mode is unknown: that is never GuardOff.
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
