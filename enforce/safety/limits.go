// Package safety holds back the actions of a plan that are more than the author of a policy can have meant, and names
// the daemons that are never ended. It is pure, and knows of a plan only which users and hosts its actions are about.
//
//	held := safety.Hold(limits, actions)
package safety

import (
	"fmt"
	"time"

	"github.com/seed-3119e985/genv/enforce/order"
	"github.com/seed-3119e985/genv/snapshot"
	"github.com/seed-3119e985/genv/snapshot/text"
)

// Limits hold back the actions against a user or on a host if they are more than
// the policy's author can have meant. The zero Limits hold nothing back.
type Limits struct {
	Fleet   Limit // for a cycle as a whole
	PerUser Limit // for each user on each host
	PerHost Limit // for each host
	// Throttle carries out as many actions as a limit allows in a cycle, those
	// of the oldest findings first, where otherwise none is.
	Throttle bool
	// Paused is why an operator put all actions on hold; empty if none did.
	Paused string
}

// Exceedable reports whether any limit may be exceeded by orders. Hold need not be called if not.
func (l Limits) Exceedable(orders []order.OfHost) bool {
	var all tally
	for i := range orders {
		all.terminations += len(orders[i].Order.Terminate)
		all.detachments += len(orders[i].Order.Detach)
	}
	over, _ := l.Fleet.over(all, perFleet)
	return all != tally{} && (l.Paused != "" || l.PerUser != Limit{} || l.PerHost != Limit{} || over != "")
}

// Limit is how much may be done in one cycle; 0 means no limit.
type Limit struct {
	Terminations int
	Detachments  int
}

// Held are the actions against one user on one host that a limit held back. Those against unknown users have no
// User, and those of a plan for this machine alone have no Host.
type Held struct {
	User         snapshot.Username `json:"user,omitempty"`
	Host         snapshot.Hostname `json:"host,omitempty"`
	Terminations int               `json:"terminations"`
	Detachments  int               `json:"detachments"`
	Because      string            `json:"because"`

	// UntilTick says that it is only until the next tick, because of what was done earlier in the same interval.
	UntilTick bool `json:"-"`

	partly bool // others were carried out, as Throttle allows
	paused bool // by an operator
}

// Waits is what a finding waits for that has all of its actions held back.
func (h *Held) Waits() string {
	if h.paused {
		return h.Because
	}
	return "safety limit exceeded: " + h.Because
}

// String is a line about it.
func (h Held) String() string {
	taken := "No action"
	if h.partly {
		taken = "Only some actions"
	}
	return fmt.Sprintf("Safety limit exceeded: %s. %s taken %s in this cycle (kept back: %d terminations, %d detachments)",
		h.Because, taken, h.Whom(), h.Terminations, h.Detachments)
}

// Whom says against whom, and where, they are.
func (h *Held) Whom() string {
	whom := "against users who are not known"
	if h.User != "" {
		whom = "against user " + text.Shown(string(h.User))
	}
	if h.Host != "" {
		whom += " on host " + string(h.Host)
	}
	return whom
}

// Action is a termination or a detachment.
type Action struct {
	User   snapshot.Username // against whom it is directed; "" if that isn't known
	Host   snapshot.Hostname
	PID    snapshot.PID         // of a termination; 0 for a detachment
	Device snapshot.DeviceIndex // of a detachment, from EID
	EID    snapshot.EnvID
	Since  time.Time // of its oldest finding
	Held   *Held     // set by Hold; nil if it is carried out

	of   *pair
	turn int // its place among the held ones of its host
}

// tally counts actions.
type tally struct{ terminations, detachments int }

func (t *tally) add(a *Action, n int) {
	if a.PID == 0 {
		t.detachments += n
	} else {
		t.terminations += n
	}
}

// over says which limit a tally exceeds, by its key in a policy file, which ends with suffix; "" for none. size
// counts the actions that are too many.
func (l Limit) over(t tally, suffix string) (why string, size func(tally) int) {
	switch {
	case l.Terminations > 0 && t.terminations > l.Terminations:
		why = fmt.Sprintf("%d processes would be terminated, and max-terminations%s is %d", t.terminations, suffix,
			l.Terminations)
		return why, func(t tally) int { return t.terminations }
	case l.Detachments > 0 && t.detachments > l.Detachments:
		why = fmt.Sprintf("%d GPUs would be detached, and max-detachments%s is %d", t.detachments, suffix,
			l.Detachments)
		return why, func(t tally) int { return t.detachments }
	}
	return "", nil
}

// The ends of the keys of limits.
const (
	perFleet = ""
	perUser  = "-per-user"
	perHost  = "-per-host"
)

// Protected are the names of daemons that are never ended unless a policy names them: those that carry a machine, our
// own way in, and NVIDIA's. A name alone protects no process, since every user may choose one: the host says which of
// its processes go by one rightly (snapshot.Process.Protected; see enforce/local).
func Protected() []string {
	return []string{
		"systemd", "init", "sshd", "sshd-session", "sshd-auth",
		"nvidia-cuda-mps-server", "nvidia-cuda-mps-control",
		"nvidia-persistenced", "nvidia-fabricmanager", "nv-fabricmanager", "nvidia-imex", "nvidia-powerd",
		"nvidia-gridd", "nvidia-vgpu-mgr", "nvidia-vgpud", "nv-hostengine", "dcgm", "dcgm-exporter",
	}
}
