package holdings

import (
	"github.com/seed-3119e985/genv/enforce/contents"
	"github.com/seed-3119e985/genv/snapshot"
)

// Shard is what the users with caps hold on some of the fleet's hosts.
type Shard struct {
	Hosts []Host `json:"hosts,omitempty"`
	// Missing is how many of the shard's hosts did not answer.
	Missing int `json:"missing,omitempty"`
	// Processes are those that end when a user loses something.
	Processes []Process `json:"processes,omitempty"`
	Users     []User    `json:"users,omitempty"`
}

// Host is one on which users hold something.
type Host struct {
	Name  snapshot.Hostname `json:"name"`
	Order int               `json:"order"` // in the fleet: of what costs the same, the first host's goes first
}

// Process is one that uses devices.
type Process struct {
	Host int          `json:"host"` // in Hosts
	PID  snapshot.PID `json:"pid"`
	// Ends says that it ends anyway, and Stuck that it can't be ended. Reported says that
	// its use of a device is only reported, without a uid of a user.
	Ends     bool `json:"ends,omitempty"`
	Stuck    bool `json:"stuck,omitempty"`
	Reported bool `json:"reported,omitempty"`
}

// User is what a user with a cap holds.
type User struct {
	Name  snapshot.Username `json:"user"`
	Hosts int               `json:"hosts,omitempty"` // on how many the user holds something; those without a name don't count
	// First and Rank say where the user appears first: on which of Hosts, and after how many
	// users who appear before. Users are decided about in this order.
	First int `json:"first"`
	Rank  int `json:"rank"`
	// Due are the caps of which a warning would be over if the user were found over them now.
	Due     Caps      `json:"due,omitempty"`
	Envs    []Env     `json:"envs,omitempty"`
	Devices []*Device `json:"devices,omitempty"`
}

// Env is an environment of the user's.
type Env struct {
	Host    int            `json:"host"`
	EID     snapshot.EnvID `json:"eid"`
	Created snapshot.Date  `json:"created,omitzero"`
	Cost    int8           `json:"cost,omitempty"`  // of losing its devices, as contents.Contents.Cost: the lowest goes first
	Loses   []Loss         `json:"loses,omitempty"` // when it is taken
}

// Loss is a device that an environment loses, with the processes that end then.
type Loss struct {
	Device    snapshot.DeviceIndex `json:"device"`
	Processes []int                `json:"processes,omitempty"` // in Processes
}

// UnknownBytes is an amount of memory that is not known.
const UnknownBytes = -1

// Device is a device that the user's environments are attached to, or that the user's
// processes in registered environments use.
type Device struct {
	Host   int                  `json:"host"`
	Index  snapshot.DeviceIndex `json:"device"`
	Newest snapshot.Date        `json:"newest,omitzero"` // when the newest attachment was made; zero without attachments
	Oldest snapshot.Date        `json:"oldest,omitzero"` // likewise, of the oldest
	// Unknown is what processes of unknown environments prove about its use, and Exempt what
	// exempt processes of the user's environments do: no cap takes that.
	Unknown   contents.Evidence `json:"unknown,omitempty"`
	Exempt    contents.Evidence `json:"exempt,omitempty"`
	Envs      []Attached        `json:"envs,omitempty"`      // that are attached to it
	Processes []Use             `json:"processes,omitempty"` // that end when the user loses it
	// Bytes is how much memory the user has by this device, and Used what the user's
	// processes use of it; UnknownBytes where that is not known.
	Bytes int64 `json:"bytes"`
	Used  int64 `json:"used"`

	atFirst assessment
}

// Attached is an environment that is attached to a device. Leaves says that it loses the
// device anyway.
type Attached struct {
	EID    snapshot.EnvID `json:"eid"`
	Leaves bool           `json:"leaves,omitempty"`
}

// Use is a process that uses a device; Attached says that it is in an environment of the
// user's that is attached to it.
type Use struct {
	Process  int  `json:"process"` // in Processes
	Attached bool `json:"attached,omitempty"`
}

// Cap is a kind of cap.
type Cap int8

// The caps, in the order in which they are applied: what one takes does not count for the next.
const (
	Envs Cap = iota
	Devices
	Memory
)

// Caps is a set of caps.
type Caps uint8

// With is the set with one more.
func (c Caps) With(one Cap) Caps { return c | 1<<one }

// Has reports whether a cap is in the set.
func (c Caps) Has(one Cap) bool { return c&(1<<one) != 0 }
