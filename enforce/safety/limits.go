// Package safety holds back actions of a plan beyond what the author of a policy can have meant, and names daemons that
// are never ended. It is pure, and knows only the users and hosts of a plan's actions.
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

// Limits hold back more actions than the policy's author can have meant. The zero Limits hold back nothing.
type Limits struct {
	Fleet    Limit // in a cycle
	PerUser  Limit // on each host
	PerHost  Limit
	Throttle bool   // carries out actions of the oldest findings up to a limit, instead of none
	Paused   string // an operator's reason to hold all actions; empty for no hold
}

// Limit is the maximum in a cycle; 0 for none.
type Limit struct {
	Terminations int
	Detachments  int
}

// Held are held actions against a user on a host. User is empty if unknown, Host for this machine alone.
type Held struct {
	User         snapshot.Username `json:"user,omitempty"`
	Host         snapshot.Hostname `json:"host,omitempty"`
	Terminations int               `json:"terminations"`
	Detachments  int               `json:"detachments"`
	Because      string            `json:"because"`

	// UntilTick: deferred to the next tick, because of earlier actions in the same interval.
	UntilTick bool `json:"-"`

	partly bool // Throttle allowed others
	paused bool // by an operator
}

// Reason is why a finding with only held actions is pending.
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

// Whom says against whom and where the actions are.
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
	User   snapshot.Username // the target; "" if unknown
	Host   snapshot.Hostname
	PID    snapshot.PID         // of a termination; 0 for a detachment
	Device snapshot.DeviceIndex // of a detachment, from EID
	EID    snapshot.EnvID
	Since  time.Time // of its oldest finding
	Held   *Held     // set by Hold; nil to carry it out

	of *group // its pair
}

// Protected are daemons that are never ended unless a policy names them: those that the machine, logins and NVIDIA's
// driver need. Every user can choose such a name: the host says which processes have one rightly
// (snapshot.Process.Protected).
func Protected() []string {
	return []string{
		"systemd", "init", "sshd", "sshd-session", "sshd-auth",
		"nvidia-cuda-mps-server", "nvidia-cuda-mps-control",
		"nvidia-persistenced", "nvidia-fabricmanager", "nv-fabricmanager", "nvidia-imex", "nvidia-powerd",
		"nvidia-gridd", "nvidia-vgpu-mgr", "nvidia-vgpud", "nv-hostengine", "dcgm", "dcgm-exporter",
	}
}

// MaxEventsPerHost limits a host's findings with events in an interval, besides those acted on: a host may make up
// processes to fill a log.
const MaxEventsPerHost = 256

// Tally is what was done and said since the last tick. Limits apply to its sum, so frequent events do no more. Its maps
// must not be shared: see Clone.
type Tally struct {
	items               []*Item
	Announced, Notified map[snapshot.Hostname]int  // findings with an event, and messages to users
	More                map[snapshot.Hostname]bool // hosts with an EventMore
	Held                map[string]bool            // hosts and users with an EventHeld
	// Stages are what users were notified of, by finding: a message that didn't arrive is sent again after the next
	// tick.
	Stages map[string]int
}

// Clone returns a copy that can be changed.
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

// Allow adds items, sorted by host, as far as all of the round stay within the limits. It returns those to defer to the
// next tick: all of a host, if they are too many.
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
	} // for Hold to change
	return len(Hold(limits, all)) > 0
}

// Items are the items of orders. since is when findings began, by ID. target is the user whom ending a process is
// directed against.
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
