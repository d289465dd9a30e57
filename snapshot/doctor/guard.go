package doctor

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/seed-3119e985/genv/snapshot"
	"github.com/seed-3119e985/genv/snapshot/text"
)

// GuardState is what the kernel guard of a host does, and what it was ordered.
type GuardState struct {
	Mode   snapshot.GuardMode `json:"mode"`             // now; unable if it can't do what was ordered
	Reason string             `json:"reason,omitempty"` // why it isn't what was ordered
	// Ordered is the mode of the last order since the host was started.
	Ordered snapshot.GuardMode `json:"ordered,omitempty"`
	By      string             `json:"by,omitempty"`     // who gave that order
	Renewed time.Time          `json:"renewed,omitzero"` // last
	Veto    bool               `json:"veto,omitempty"`   // a file keeps it off
}

// known is the state if this version knows its modes, with bounded texts; else nil.
func (g *GuardState) known() *GuardState {
	modes := []snapshot.GuardMode{snapshot.GuardOff, snapshot.GuardWatch, snapshot.GuardEnforce, snapshot.GuardUnable}
	if g == nil || !slices.Contains(modes, g.Mode) || g.Ordered != "" && !slices.Contains(modes[:3], g.Ordered) {
		return nil
	}
	bounded := *g
	bounded.Reason, bounded.By = OneLine(g.Reason), text.OneLine(text.Cut(g.By, maxWord))
	return &bounded
}

// over says that an order to watch or to enforce isn't renewed any more.
func (g *GuardState) over() bool {
	return g.Mode == snapshot.GuardOff && !g.Veto && g.Ordered != "" && g.Ordered != snapshot.GuardOff
}

// order describes the last order, which is not one to be off.
func (g *GuardState) order() string {
	return fmt.Sprintf("%s ordered %s, last at %s", g.By, g.Ordered, g.Renewed.Local().Format(time.DateTime))
}

// CheckKernel judges whether the kernel could guard devices: a program on cgroup2, with a ring buffer for its events,
// since Linux 5.8. mounts is the text of /proc/self/mounts, and bpf whether the kernel has bpf(2).
func CheckKernel(release, mounts string, bpf bool) Check {
	var major, minor int
	parsed, _ := fmt.Sscanf(release, "%d.%d", &major, &minor) // such as 6.1.0-18-amd64
	seen, cgroup2 := "Linux "+release, cgroup2In(mounts)
	return First(Guard,
		If(parsed < 2 || major <= 0, Unsure, "the kernel's version is unknown (%q)", OneLine(release)),
		If(major < 5 || major == 5 && minor < 8, "old-kernel", "%s", seen),
		If(!bpf, "no-bpf", "%s has no bpf(2)", seen),
		If(cgroup2 == "", "no-cgroup2", "%s, without cgroup2", seen),
		If(true, "", "%s, cgroup2 at %s, BPF", seen, cgroup2))
}

// CheckGuard judges whether the guard does what it was ordered. kernel is the result of CheckKernel, and
// g is nil if what the guard does is unknown. A host knows no more of a policy than its orders.
func CheckGuard(kernel Check, g *GuardState) Check {
	if g == nil {
		return kernel
	}
	fine := kernel
	if fine.Status == OK {
		fine.Detail = OneLine(fmt.Sprintf("%s; the guard is %s", kernel.Detail, g.shown()))
	}
	return First(Guard,
		If(g.Mode == snapshot.GuardUnable, "guard-unable", "%s, and the host can't do it: %s (%s)", g.order(), g.Reason,
			kernel.Detail),
		If(g.over(), "guard-not-renewed", "%s, and not since; every open is allowed (%s)", g.order(), kernel.Detail),
		fine)
}

func (g *GuardState) shown() string {
	if g.Reason == "" {
		return string(g.Mode)
	}
	return fmt.Sprintf("%s: %s", g.Mode, g.Reason)
}

// CompareGuard judges whether the guard does what the policy wants (empty or off: none). own is the host's check.
func CompareGuard(own Check, g *GuardState, wanted snapshot.GuardMode) Check {
	says := fmt.Sprintf("the policy says %s, and ", wanted)
	switch {
	case wanted == "" || wanted == snapshot.GuardOff:
		return own
	case g == nil:
		return Unknown(Guard, "%sit is unknown what the guard does: %s", says, own.Detail)
	}
	return First(Guard,
		If(g.Mode == wanted, "", "%s, as the policy says", own.Detail),
		If(slices.Contains([]Cause{"old-kernel", "no-bpf", "no-cgroup2"}, own.Cause), "guard-impossible",
			"%sthe host has no kernel for it: %s", says, own.Detail),
		If(g.Mode == snapshot.GuardUnable, "guard-unable", "%sthe host can't do it: %s", says, g.Reason),
		If(g.Veto || g.Ordered == snapshot.GuardOff, "guard-turned-off", "%sthe guard is off: %s", says, g.Reason),
		If(g.Ordered == "", "guard-not-ordered", "%sno controller has ordered it since the host was started", says),
		If(g.over(), "guard-not-ordered", "%s%s, and not since", says, g.order()),
		If(g.Ordered != wanted, "guard-other-order", "%s%s", says, g.order()),
		If(true, "guard-unable", "%sthe guard is %s", says, g.shown()))
}

// cgroup2In finds where cgroup2 is mounted in the text of /proc/self/mounts; empty if it isn't.
func cgroup2In(mounts string) string {
	for line := range strings.Lines(mounts) {
		if f := strings.Fields(line); len(f) >= 3 && f[2] == "cgroup2" {
			return f[1]
		}
	}
	return ""
}
