// Package gpus joins a host's snapshot into rows: who uses which GPU, and which are free? It is pure, and only reads.
// Values that the host did not report are nil or empty, never zero.
//
//	for _, g := range gpus.Of(s) {
//		fmt.Println(g.Index, g.State, g.Users())
//	}
package gpus

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/seed-3119e985/genv/snapshot"
	"github.com/seed-3119e985/genv/snapshot/text"
)

// State is a GPU's use. The texts appear in JSON and in metrics.
type State string

// Each GPU is in one state.
const (
	Free     State = "free"     // neither attached nor used
	Attached State = "attached" // attached to an environment, and used by no process
	Idle     State = "idle"     // held by processes, at a utilization of 0 %
	Busy     State = "busy"     // used by processes
	MIG      State = "mig"      // CUDA can only use its MIG instances, of which none is attached or used
	Unusable State = "unusable" // CUDA can't use it: compute mode Prohibited, or MIG mode without an instance
	Failed   State = "failed"   // it is lost or needs a reset; no rule acts on it
	// Unknown: nvidia-smi doesn't report it, a value or its processes; one of these can't be seen or is unproved; or at
	// least 1 GiB, or over 5 % in two looks, is in use without a visible process.
	Unknown State = "unknown"
)

// States lists all states, the most welcome first.
func States() []State { return []State{Free, MIG, Attached, Idle, Busy, Unknown, Unusable, Failed} }

// Problem is a text of the driver, which no user influences.
type Problem string

// hiddenBytes in use mean that a GPU isn't free, even without a visible process: a driver and an X server use less.
const hiddenBytes = 1 << 30

// GPU is a device, its attachments and its processes, as in JSON.
type GPU struct {
	Index  snapshot.DeviceIndex `json:"index"`
	UUID   snapshot.GPUUUID     `json:"uuid,omitempty"`
	Model  string               `json:"model,omitempty"`
	Driver string               `json:"driver,omitempty"` // its version
	State  State                `json:"state"`
	// Problem is what the driver says of one that failed or can't be measured, or why CUDA can't use it.
	Problem    Problem `json:"problem,omitempty"`
	MemoryUsed *int64  `json:"memory_used_bytes,omitempty"`
	// MemoryTotal is null if it is unknown, or shared with the machine.
	MemoryTotal *int64     `json:"memory_total_bytes"`
	Utilization *int       `json:"utilization_percent,omitempty"`
	Temperature *int       `json:"temperature_celsius,omitempty"`
	Power       *float64   `json:"power_watts,omitempty"`
	Instances   []Instance `json:"mig,omitempty"` // its MIG instances
	// MIGMode says that CUDA can use its instances alone.
	MIGMode bool `json:"mig_mode,omitempty"`
	// Display says whether a screen is active on it; missing if unknown.
	Display   *bool        `json:"display,omitempty"`
	Attached  []Attachment `json:"attached"` // null if unknown
	Processes []Process    `json:"processes"`
}

// Instance is a MIG instance of a GPU.
type Instance struct {
	UUID    snapshot.GPUUUID `json:"uuid"`
	Profile string           `json:"profile,omitempty"`      // such as "1g.10gb"
	Memory  *int64           `json:"memory_bytes,omitempty"` // instances of one GPU instance share it
}

// Attachment is an environment to which a GPU is attached.
type Attachment struct {
	EID    snapshot.EnvID    `json:"eid"`
	Name   string            `json:"name,omitempty"` // of the environment
	User   snapshot.Username `json:"user,omitempty"` // missing if it isn't registered any more
	Since  time.Time         `json:"since,omitzero"`
	Memory *int64            `json:"memory_bytes,omitempty"` // its capacity; missing for all
	// Instances are its MIG instances; missing for the whole GPU.
	Instances []snapshot.GPUUUID `json:"mig,omitempty"`
}

// Process is a process that uses a GPU.
type Process struct {
	PID     snapshot.PID       `json:"pid"`
	Start   snapshot.StartTime `json:"start,omitempty"`
	User    snapshot.Username  `json:"user,omitempty"` // "uid 1004" for one without a name
	EID     snapshot.EnvID     `json:"eid,omitempty"`  // a claim, which its owner can choose
	Command string             `json:"command,omitempty"`
	// PrivateCommand replaces the command where /proc hides it (hidepid): for its owner, root and operators.
	PrivateCommand string `json:"private_command,omitempty"`
	// no GPU was seen open in it: no rule acts on it
	Unproved bool   `json:"unproved,omitempty"`
	Memory   *int64 `json:"memory_bytes,omitempty"` // of this GPU
	// Type is that of `nvidia-smi -q`, asked only before a process would end.
	Type      snapshot.ProcessType `json:"type,omitempty"`
	Container string               `json:"container,omitempty"` // its id
	Image     string               `json:"image,omitempty"`     // of the container
	Instances []snapshot.GPUUUID   `json:"mig,omitempty"`       // its MIG instances
	// ContainerName is its name in the runtime.
	ContainerName string `json:"container_name,omitempty"`
	// StartedBy is the proved user who started it.
	StartedBy snapshot.Username `json:"started_by,omitempty"`
}

// UserName is a host's name for a user, or "uid 1004" without one; empty if unknown.
func UserName(name snapshot.Username, uid *snapshot.UID) snapshot.Username {
	if name == "" && uid != nil {
		return snapshot.Username(fmt.Sprintf("uid %d", *uid))
	}
	return name
}

// ShownUser is for people, quoted unless it is an ordinary word or like "uid 1004".
func ShownUser(user snapshot.Username) string {
	if uid, found := strings.CutPrefix(string(user), "uid "); found && len(uid) <= 10 && text.IsMadeOf(uid, "") {
		return string(user)
	}
	return text.Shown(string(user))
}

// ShortModel is a model's name without its maker, which is always the same.
func ShortModel(model string) string { return strings.TrimPrefix(model, "NVIDIA ") }

// ContainerText is snapshot.Process.ContainerText.
func (p *Process) ContainerText() string {
	if p.Container == "" {
		return ""
	}
	shown := snapshot.ContainerName(p.Container, p.ContainerName, p.Image)
	switch {
	case p.StartedBy != "":
		return shown + snapshot.StartedBy(ShownUser(p.StartedBy))
	case p.ContainerName != "":
		return shown + snapshot.StartedBy("")
	}
	return shown
}

// CommandLine is for those who may see private commands.
func (p *Process) CommandLine() string { return cmp.Or(p.Command, p.PrivateCommand) }

// Users lists those who are attached to the GPU or use it, sorted.
func (g *GPU) Users() []snapshot.Username {
	var users []snapshot.Username
	for i := range g.Attached {
		users = append(users, g.Attached[i].User)
	}
	for i := range g.Processes {
		users = append(users, g.Processes[i].User)
	}
	slices.Sort(users)
	return slices.DeleteFunc(slices.Compact(users), func(u snapshot.Username) bool { return u == "" })
}

// Since is the time of the oldest attachment; zero if there is none.
func (g *GPU) Since() time.Time {
	var since time.Time
	for i := range g.Attached {
		if t := g.Attached[i].Since; !t.IsZero() && (since.IsZero() || t.Before(since)) {
			since = t
		}
	}
	return since
}

// StateCounts counts the GPUs in each state.
type StateCounts struct{ Free, MIG, Attached, Idle, Busy, Unknown, Unusable, Failed int }

// Add counts the GPUs of a list.
func (c *StateCounts) Add(list ...GPU) {
	for i := range list {
		*c.of(list[i].State)++
	}
}

// In returns the number in a state.
func (c StateCounts) In(state State) int { return *c.of(state) }

func (c *StateCounts) of(state State) *int {
	counts := [...]*int{&c.Free, &c.MIG, &c.Attached, &c.Idle, &c.Busy, &c.Unknown, &c.Unusable, &c.Failed} // as States
	if i := slices.Index(States(), state); i >= 0 {
		return counts[i]
	}
	return &c.Unknown
}

// Held counts those that are attached or held by processes, and compute nothing.
func (c StateCounts) Held() int { return c.Attached + c.Idle }

// Total counts all.
func (c StateCounts) Total() int {
	return c.Free + c.MIG + c.Held() + c.Busy + c.Unknown + c.Unusable + c.Failed
}

func gpuOf(s *snapshot.Snapshot, d *snapshot.Device, environments map[snapshot.EnvID]*snapshot.Environment) GPU {
	g := GPU{
		Index: d.Index, UUID: d.UUID, Model: d.Name, Driver: d.Driver, Problem: Problem(d.Problem),
		MemoryUsed: bytesOf(d.UsedMemory), MemoryTotal: bytesOf(d.Capacity()), Utilization: d.Utilization,
		Temperature: d.Temperature, Power: d.Power, Processes: []Process{},
		MIGMode: d.MIGMode || len(d.Instances) > 0, Display: d.Display,
	}
	for _, instance := range d.Instances {
		g.Instances = append(g.Instances, Instance{instance.UUID, instance.Profile, bytesOf(instance.Total)})
	}
	if !d.Unidentified || len(d.Attachments) > 0 {
		g.Attached = make([]Attachment, 0, len(d.Attachments))
	}
	for _, a := range d.Attachments {
		attached := Attachment{
			EID: a.EID, Memory: bytesOf(a.GPUMemory), Instances: a.Instances, Since: s.When(a.Since, a.Time),
		}
		if e := environments[a.EID]; e != nil { // else it is no longer registered
			attached.Name, attached.User = e.Config.Name, UserName(e.Username, &e.UID)
		}
		g.Attached = append(g.Attached, attached)
	}
	return g
}

func (g *GPU) own(list []snapshot.GPUUUID) (own []snapshot.GPUUUID) {
	for _, instance := range g.Instances {
		if slices.Contains(list, instance.UUID) {
			own = append(own, instance.UUID)
		}
	}
	return own
}

func processOf(p *snapshot.Process, usage snapshot.DeviceUsage, claimed *snapshot.Environment) Process {
	described := Process{
		PID: p.PID, Start: p.Start, User: UserName(p.Account(claimed)), EID: p.EID,
		Command: p.CommandOrName(), PrivateCommand: p.PrivateCommand,
		Memory: bytesOf(usage.Memory), Container: p.Container, Unproved: p.NodeMissing,
	}
	if usage.Type != snapshot.TypePending {
		described.Type = usage.Type
	}
	if c := p.ContainerInfo; c != nil {
		described.ContainerName, described.Image, described.StartedBy = c.Name, c.Image, UserName(c.User, c.UID)
	}
	return described
}

func bytesOf(m snapshot.Memory) *int64 {
	if !m.Known() {
		return nil
	}
	amount := m.Bytes()
	return &amount
}
