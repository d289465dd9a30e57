package enforce

import (
	"fmt"
	"time"

	"github.com/seed-3119e985/genv/snapshot"
)

// Finding is a violated rule, why it is violated, and what the plan does about
// it. Fields that a rule has no use for are empty. String is 1.4.3's line.
type Finding struct {
	// ID is the same for the same violation in every cycle, and joins finding,
	// report and outcome in the audit log.
	ID   string `json:"id"`
	Rule Rule   `json:"rule"`
	// Host is empty when the finding is about a user on several hosts.
	Host snapshot.Hostname `json:"host,omitempty"`
	PID  snapshot.PID      `json:"pid,omitempty"`
	// EID is the environment; for non-env-processes the one that the process
	// claims without being registered there.
	EID  snapshot.EnvID    `json:"eid,omitempty"`
	User snapshot.Username `json:"user,omitempty"`
	// UID is the owner of the process or environment: of a process as the kernel
	// reports it, of an environment as its state file says. nil when the host did
	// not report it, or when the state file contradicts the kernel.
	UID *snapshot.UID `json:"uid,omitempty"`
	// Command is the command line of the process and Container the container that it runs
	// in; empty when not known. Instances are the MIG instances of Devices that the process
	// uses, or to which the environment is attached; empty for whole devices.
	Command string `json:"command,omitempty"`
	// PrivateCommand is it where /proc of the host hides it: see snapshot.Process. No text has it.
	PrivateCommand string                  `json:"private_command,omitempty"`
	Container      string                  `json:"container,omitempty"`
	ContainerInfo  *snapshot.ContainerInfo `json:"container_info,omitempty"`
	Instances      []snapshot.GPUUUID      `json:"mig,omitempty"`
	// Devices are not attached (env-devices), or over its capacity (env-memory).
	Devices []snapshot.DeviceIndex `json:"devices,omitempty"`
	// Renumbered says that the environment had these devices before GPUs were renumbered, so
	// that its shell may not know the present indices: nothing is done until it is Due.
	Renumbered bool `json:"renumbered,omitempty"`

	// Unreadable is set for unreadable-processes.
	Unreadable *snapshot.Unreadable `json:"unreadable,omitempty"`

	// Memory is set for env-memory and max-memory-per-user, Count for the caps,
	// For and Limit (how long it lasted, and how long it may) for idle and
	// max-duration.
	Memory *MemoryExcess `json:"memory,omitempty"`
	Count  *CountExcess  `json:"count,omitempty"`
	For    time.Duration `json:"for_ns,omitempty"`
	Limit  time.Duration `json:"limit_ns,omitempty"`

	// Since is when it was first seen without a break, and Cycles in how many
	// cycles. While it is Pending nothing is done; Due is then the earliest time.
	Since   time.Time `json:"since"`
	Cycles  int       `json:"cycles"`
	Pending bool      `json:"pending,omitempty"`
	Due     time.Time `json:"due,omitzero"`
	// Waits is what else than time it waits for; empty for nothing. Held says that
	// this is a safety limit, which holds back all that would be done because of it.
	Waits string `json:"waits,omitempty"`
	Held  bool   `json:"-"`
	// HostsMissing is how many hosts did not answer and are not in Count and
	// Memory: the user may have more.
	HostsMissing int `json:"hosts_missing,omitempty"`
	// Stuck are the processes that would have to end and could not be ended
	// before, each with the reason, which says if SIGTERM is sent again later.
	Stuck []StuckProcess `json:"stuck,omitempty"`

	// UnderWay is how many of its processes and devices an earlier report is about
	// that the host is still carrying out.
	UnderWay int `json:"under_way,omitempty"`

	// Terminate and Detach are what the plan does because of this finding, or
	// will do once it is due; a process may be in more than one finding.
	Terminate []ProcessRef `json:"terminate,omitempty"`
	Detach    []DeviceRef  `json:"detach,omitempty"`
}

// MemoryExcess is by how much an environment is over its capacity on a device.
type MemoryExcess struct {
	UsedBytes     int64  `json:"used_bytes"`
	CapacityBytes int64  `json:"capacity_bytes"`
	Capacity      string `json:"capacity,omitempty"` // as its owner wrote it
}

func (m MemoryExcess) bytes() int64 { return m.UsedBytes - m.CapacityBytes }

// CountExcess is by how much a user is over a cap.
type CountExcess struct {
	Used  int `json:"used"`
	Limit int `json:"limit"`
	// Attached is to how many devices the user's environments are attached, and Unattached how many others
	// the user's processes use; only of max-devices-per-user.
	Attached   int `json:"attached,omitempty"`
	Unattached int `json:"unattached,omitempty"`
	// Hosts is the number of hosts with what Used counts; 0 if only this machine was judged.
	Hosts int `json:"hosts,omitempty"`
}

// ProcessRef names a process of a host.
type ProcessRef struct {
	Host snapshot.Hostname `json:"host"`
	PID  snapshot.PID      `json:"pid"`
}

// StuckProcess is a process that cannot be ended, in plain English.
type StuckProcess struct {
	ProcessRef
	Reason string `json:"reason"`
}

// DeviceRef names an attachment that is to go.
type DeviceRef struct {
	Host  snapshot.Hostname    `json:"host"`
	Index snapshot.DeviceIndex `json:"device"`
	EID   snapshot.EnvID       `json:"eid"`
}

// Line is String followed by the user and the command of the process, as far as
// they are known.
func (f Finding) Line() string {
	if known := f.Rule.of(); known != nil && known.user != nil {
		return f.String() // it names the user already
	}
	return f.String() + (&snapshot.Process{
		Username: f.User, UID: f.UID, Command: f.Command, Container: f.Container, ContainerInfo: f.ContainerInfo, Instances: f.Instances,
	}).Describe()
}

// String is the line that users of 1.4.3 know, without a host in front.
func (f Finding) String() string {
	if known := f.Rule.of(); known != nil {
		return known.line(f)
	}
	return string(f.Rule)
}

// Advice is what the user of the finding should do, in a sentence or two.
func (f *Finding) Advice() string {
	if f.Renumbered {
		return "Run genv attach --refresh in that shell, and start the process again: else it is on a GPU that another user may get."
	}
	return f.Rule.Advice()
}

func (c CountExcess) where() string {
	if c.Hosts == 0 {
		return ""
	}
	return fmt.Sprintf(" on %d hosts", c.Hosts)
}
