// Package safety holds back the actions of a plan that are more than the author of a
// policy can have meant, and names the daemons that are never ended. It is pure, and
// knows of a plan only which users and hosts its actions are about.
//
//	held := safety.Hold(limits, actions, processes)
package safety

import (
	"fmt"
	"time"

	"github.com/seed-3119e985/genv/snapshot"
	"github.com/seed-3119e985/genv/snapshot/text"
)

// Limits hold back the actions against a user or on a host if they are more than
// the policy's author can have meant. The zero Limits hold nothing back.
type Limits struct {
	Fleet   Limit // for a cycle as a whole
	PerUser Limit // for each user, on all hosts together
	PerHost Limit // for each host
	// Throttle carries out as many actions as a limit allows in a cycle, those
	// of the oldest findings first, where otherwise none is.
	Throttle bool
	// Paused is why an operator put all actions on hold; empty if none did.
	Paused string
}

// Exceedable reports whether any limit may be exceeded by as many terminations and
// detachments, while there are as many GPU processes. Hold need not be called if not.
func (l Limits) Exceedable(terminations, detachments, processes int) bool {
	all := tally{terminations, detachments, processes}
	return terminations+detachments > 0 && (l.Paused != "" || l.PerUser != Limit{} || l.PerHost != Limit{} || l.Fleet.over(all, perFleet) != "")
}

// Limit is how much may be done in one cycle; 0 is no limit.
type Limit struct {
	Terminations int
	// Percent limits terminations to a share of the GPU processes: of those on
	// the host for a limit per host, otherwise of all.
	Percent     int
	Detachments int
}

// Held are the actions against one user, or on one host, that a limit held back;
// with both those against the user on that host.
type Held struct {
	User         snapshot.Username `json:"user,omitempty"`
	Host         snapshot.Hostname `json:"host,omitempty"`
	Terminations int               `json:"terminations"`
	Detachments  int               `json:"detachments"`
	Because      string            `json:"because"`

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
	whom := "on this machine"
	switch {
	case h.User != "" && h.Host != "":
		whom = fmt.Sprintf("against user %s on host %s", text.Shown(string(h.User)), h.Host)
	case h.User != "":
		whom = "against user " + text.Shown(string(h.User))
	case h.Host != "":
		whom = "on host " + string(h.Host)
	}
	taken := "No action"
	if h.partly {
		taken = "Only some actions"
	}
	return fmt.Sprintf("Safety limit exceeded: %s. %s taken %s in this cycle (held: %d terminations, %d detachments)", h.Because, taken, whom, h.Terminations, h.Detachments)
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
}

// Processes are the GPU processes on a host, by user.
type Processes struct {
	Host   snapshot.Hostname
	ByUser map[snapshot.Username]int
}

// tally counts actions, and GPU processes for limits that are a share of them.
type tally struct{ terminations, detachments, processes int }

func (t *tally) add(a *Action, n int) {
	if a.PID == 0 {
		t.detachments += n
	} else {
		t.terminations += n
	}
}

// over says which limit a tally exceeds, by its key in a policy file, which ends
// with suffix; "" for none.
func (l Limit) over(t tally, suffix string) string {
	switch {
	case l.Terminations > 0 && t.terminations > l.Terminations:
		return fmt.Sprintf("%d processes would be terminated, and max-terminations%s is %d", t.terminations, suffix, l.Terminations)
	case l.Percent > 0 && t.terminations*100 > l.Percent*t.processes:
		return fmt.Sprintf("%d of %d GPU processes would be terminated, and max-percent%s is %d", t.terminations, t.processes, suffix, l.Percent)
	case l.Detachments > 0 && t.detachments > l.Detachments:
		return fmt.Sprintf("%d devices would be detached, and max-detachments%s is %d", t.detachments, suffix, l.Detachments)
	}
	return ""
}

// The ends of the keys of limits.
const (
	perFleet = ""
	perUser  = "-per-user"
	perHost  = "-per-host"
)

// Protected are the names of daemons that are never ended unless a policy names them:
// those that carry a machine, our own way in, and NVIDIA's. A name alone
// protects no process, since every user may choose one: the host says which of its
// processes go by one rightly (snapshot.Process.Protected; see enforce/local).
func Protected() []string {
	return []string{
		"systemd", "init", "sshd", "sshd-session", "sshd-auth",
		"nvidia-cuda-mps-server", "nvidia-cuda-mps-control",
		"nvidia-persistenced", "nvidia-fabricmanager", "nv-fabricmanager", "nvidia-imex", "nvidia-powerd",
		"nvidia-gridd", "nvidia-vgpu-mgr", "nvidia-vgpud", "nv-hostengine", "dcgm", "dcgm-exporter",
	}
}
