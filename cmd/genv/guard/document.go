package guard

import (
	"time"

	"github.com/seed-3119e985/genv/enforce/guard"
	"github.com/seed-3119e985/genv/snapshot"
	"github.com/seed-3119e985/genv/snapshot/watch"
)

// StatusDocument is the JSON of `genv guard status`; docs/json.md describes it.
type StatusDocument struct {
	Schema string    `json:"schema"`
	Time   time.Time `json:"time"`
	Root   bool      `json:"root"`
	// Mode is what the guard does now, until Until unless its lease is renewed.
	Mode         guard.Mode   `json:"mode"`
	Until        time.Time    `json:"until,omitzero"`
	LeaseSeconds float64      `json:"lease_seconds"` // left
	Reason       string       `json:"reason,omitempty"`
	Order        *guard.Order `json:"order,omitempty"`
	Given        time.Time    `json:"given,omitzero"`
	Veto         bool         `json:"veto"`
	VetoFile     string       `json:"veto_file"`
	Pins         string       `json:"pins"`
	Keeper       snapshot.PID `json:"keeper,omitempty"`
	// Unpinned: without a bpffs, the guard ends at once with the process Keeper.
	Unpinned     bool           `json:"unpinned,omitempty"`
	Kernel       *Kernel        `json:"kernel,omitempty"` // what only root can ask
	Devices      []guard.Device `json:"devices"`
	Users        []User         `json:"users"`
	UsersLeftOut int            `json:"users_left_out,omitempty"`
	// Denials are those of the last hour; null if only root may know.
	Denials  []Denial `json:"denials"`
	Problems []string `json:"problems"`
	// Events is how the host notices that a device is opened; missing if only root may know.
	Events *Events `json:"events,omitempty"`
}

// Events is how opens of devices are watched.
type Events struct {
	// Guard says that the guard reports opens of the devices that it guards, through any node.
	Guard bool         `json:"guard"`
	Opens watch.Method `json:"opens"`         // of the nodes in /dev, with the guard or without
	Why   string       `json:"why,omitempty"` // it isn't fanotify
}

// Kernel is what the kernel can do.
type Kernel struct {
	Possible  bool      `json:"possible"`
	Why       string    `json:"why,omitempty"` // it isn't
	Abilities []Ability `json:"abilities"`
	Programs  []Program `json:"programs"`
}

// Ability is something that the guard needs or can make use of.
type Ability struct {
	Name   string `json:"name"`
	OK     bool   `json:"ok"`
	Needed bool   `json:"needed"`
	Detail string `json:"detail,omitempty"`
}

// Program is a program of others that judges opens of devices.
type Program struct {
	ID       uint32 `json:"id"`
	Name     string `json:"name,omitempty"`
	Cgroup   string `json:"cgroup"`
	InTheWay bool   `json:"in_the_way"` // the guard can't be attached next to it
}

// User is a user who may open devices.
type User struct {
	guard.User
	Name snapshot.Username `json:"name,omitempty"`
}

// Denial is a denial with the name of its user.
type Denial struct {
	guard.Denial
	User snapshot.Username `json:"user,omitempty"`
}
