// Package safety holds back the actions of a plan that are more than the author of a policy can have meant, and names
// the daemons that are never ended. It is pure, and knows of a plan only which users and hosts its actions are about.
//
//	held := safety.Hold(limits, actions)
package safety

import (
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/seed-3119e985/genv/enforce/order"
	"github.com/seed-3119e985/genv/snapshot"
	"github.com/seed-3119e985/genv/snapshot/gpus"
	"github.com/seed-3119e985/genv/snapshot/text"
)

// Limits hold back the actions against a user or on a host that are more than the policy's author can have meant; the
// zero Limits nothing.
type Limits struct {
	Fleet    Limit  // for a cycle as a whole
	PerUser  Limit  // for each user on each host
	PerHost  Limit  // for each host
	Throttle bool   // carries out the oldest findings' actions up to a limit, where otherwise none is
	Paused   string // why an operator put all actions on hold; empty if none did
}

// Limit is how much may be done in one cycle; 0 means no limit.
type Limit struct {
	Terminations int
	Detachments  int
}

// Held are the actions against one user on one host that a limit held back. User is empty if unknown, Host in a plan
// for this machine alone.
type Held struct {
	User         snapshot.Username `json:"user,omitempty"`
	Host         snapshot.Hostname `json:"host,omitempty"`
	Terminations int               `json:"terminations"`
	Detachments  int               `json:"detachments"`
	Because      string            `json:"because"`

	// UntilTick says that it is only until the next tick, because of what was done in the same interval.
	UntilTick bool `json:"-"`

	partly bool // others were carried out, as Throttle allows
	paused bool // by an operator
}

// Waits is what a finding waits for that has all of its actions held back.
func (h *Held) Reason() string {
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
	return fmt.Sprintf("Safety limit exceeded: %s. %s taken %s in this cycle (kept back: %d terminations, "+
		"%d detachments)", h.Because, taken, h.Whom(), h.Terminations, h.Detachments)
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

// Item is a termination or a detachment.
type Item struct {
	User   snapshot.Username // against whom it is directed; "" if that isn't known
	Host   snapshot.Hostname
	PID    snapshot.PID         // of a termination; 0 for a detachment
	Device snapshot.DeviceIndex // of a detachment, from EID
	EID    snapshot.EnvID
	Since  time.Time // of its oldest finding
	Held   *Held     // set by Hold; nil if it is carried out

	of *group // those against the user on the host
}

// Protected are the names of daemons that are never ended unless a policy names them: those that carry a machine, our
// own way in, and NVIDIA's. Every user may choose such a name: the host says which processes go by one rightly
// (snapshot.Process.Protected).
func Protected() []string {
	return []string{
		"systemd", "init", "sshd", "sshd-session", "sshd-auth",
		"nvidia-cuda-mps-server", "nvidia-cuda-mps-control",
		"nvidia-persistenced", "nvidia-fabricmanager", "nv-fabricmanager", "nvidia-imex", "nvidia-powerd",
		"nvidia-gridd", "nvidia-vgpu-mgr", "nvidia-vgpud", "nv-hostengine", "dcgm", "dcgm-exporter",
	}
}

// MaxEventsPerHost is how many findings of a host events are about in an interval, besides those that are acted on: a
// host may make up processes to fill a log.
const MaxEventsPerHost = 256

// Tally is what was done and said since the last tick. The limits hold for all of it together: events that come
// close together do no more. Its maps must not be shared: see Clone.
type Tally struct {
	items               []*Item
	Announced, Notified map[snapshot.Hostname]int  // how many findings with an event, and messages to users
	More                map[snapshot.Hostname]bool // hosts of which it was said that they have more findings
	Held                map[string]bool            // the same of hosts and users with actions held back
	// Told says by finding how far users were told: what didn't arrive is sent again after the next tick.
	Stages map[string]int
}

// Clone is a copy that can be added to.
func (t Tally) Clone() Tally {
	return Tally{
		slices.Clip(t.items), cloned(t.Announced), cloned(t.Notified), cloned(t.More), cloned(t.Held), cloned(t.Stages),
	}
}

func cloned[K comparable, V any](m map[K]V) map[K]V {
	clone := make(map[K]V, len(m))
	maps.Copy(clone, m)
	return clone
}

// Allow adds further items, sorted by host, to those of the round, as far as they are within the limits together.
// It returns those that wait for the next tick: all of a host, if they are too many.
func (t *Tally) Allow(limits Limits, items []*Item) (late []*Item) {
	if len(t.items) == 0 || limits == (Limits{}) || !t.exceeds(limits, items) {
		t.items = append(t.items, items...)
		return nil
	}
	for from, to := 0, 0; from < len(items); from = to {
		for to < len(items) && items[to].Host == items[from].Host {
			to++
		}
		if onHost := items[from:to]; t.exceeds(limits, onHost) {
			late = append(late, onHost...)
		} else {
			t.items = append(t.items, onHost...)
		}
	}
	return late
}

func (t *Tally) exceeds(limits Limits, more []*Item) bool {
	all := make([]*Item, 0, len(t.items)+len(more))
	for _, a := range slices.Concat(t.items, more) {
		all = append(all, new(*a)) // which Hold marks
	}
	return len(Hold(limits, all)) > 0
}

// Items are the items of orders. since says when the findings behind them began, by their IDs, and target against
// which user ending a process is directed.
func Items(orders []order.OfHost, since map[string]time.Time,
	target func(snapshot.Hostname, *order.Termination) snapshot.Username,
) (list []*Item) {
	oldest := func(because []string) (at time.Time) {
		for _, id := range because {
			if at.IsZero() || since[id].Before(at) {
				at = since[id]
			}
		}
		return at
	}
	for i := range orders {
		o := &orders[i]
		for k := range o.Order.Terminate {
			t := &o.Order.Terminate[k]
			list = append(list, &Item{
				Host: o.Host, User: target(o.Host, t), PID: t.Process.PID, Since: oldest(t.Because),
			})
		}
		for k := range o.Order.Detach {
			d := &o.Order.Detach[k]
			user := gpus.UserName(d.Environment.Username, &d.Environment.UID)
			list = append(list, &Item{
				Host: o.Host, User: user, Device: d.Device, EID: d.Environment.EID, Since: oldest(d.Because),
			})
		}
	}
	return list
}
