package judging

import (
	"time"

	"github.com/seed-3119e985/genv/enforce"
	"github.com/seed-3119e985/genv/enforce/order"
	"github.com/seed-3119e985/genv/snapshot"
)

// HostView is what the rules see of a host: its snapshot without what is
// exempt, the indices that they need, and the draft of its order. A snapshot
// may list many thousand environments (a hostile host's does), so nothing here
// is looked up by scanning.
type HostView struct {
	j        *Judgement
	Name     snapshot.Hostname
	host     *snapshot.Host
	Position int           // in the cluster
	At       time.Time     // when it was asked: all ages are as of then
	silence  time.Duration // for how long it didn't answer before
	IsNew    bool          // no cycle has judged this look before
	Acted    bool          // the outcome of an order came since it was asked for
	fresh    bool          // something may be done by this look
	advances bool          // it is the first look of its round
	Labels   map[string]string
	Snapshot *snapshot.Snapshot
	Settings *enforce.Settings // of the host, for all users
	Zone     *time.Location
	byUser   map[snapshot.Username]*enforce.Settings
	InOrder  []*EnvView // as the host listed them, without those that are exempt
	In       []*EnvView // of each process the environment that it is in
	Envs     map[snapshot.EnvID]*EnvView
	// Exempt are the processes that no rule may touch, and exemptUses what those
	// of them that are in an environment use: no cap takes that.
	Exempt     map[snapshot.PID]bool
	exemptUses map[deviceOfEnv]Evidence
	// drawnOn is what processes that draw on a screen use of their environments. It is in use, and rules
	// judge what is attached.
	drawnOn map[deviceOfEnv]Evidence
	Kept    map[snapshot.DeviceIndex]string // see KeptGPUs
	// exemptDevices are those that an operator exempted, that have failed, or that people can't
	// attach.
	exemptDevices map[snapshot.DeviceIndex]bool
	Devices       map[snapshot.DeviceIndex]*snapshot.Device // the others
	// GpusByModel are how many GPUs work and aren't exempt, whatever is attached to them; those of an unknown model
	// by "".
	GpusByModel map[string]int
	// UnknownOn are the processes on a device whose environment is unknown.
	UnknownOn map[snapshot.DeviceIndex][]*snapshot.Process
	Holders   []Holder
	Users     map[snapshot.DeviceIndex][]*snapshot.Process // of devices; nil until FindUsers
	More      []*snapshot.Process                          // for each account of which something isn't in the snapshot
	Instances Instances
	notes     int // how many there are
	order.Draft
	// SharedBoot is its boot id if another host reports it, too.
	SharedBoot string
}

// EnvView is a registered environment with its processes and attachments.
type EnvView struct {
	Contents
	Env      *snapshot.Environment
	exempt   bool
	Settings *enforce.Settings // of its user here
}

// Ask asks the policy about a user on this host, once a cycle.
func (h *HostView) Ask(policy enforce.Policy, user snapshot.Username, now time.Time) *enforce.Settings {
	s := h.byUser[user]
	if s == nil {
		s = policy.Settings(enforce.Query{Host: h.Name, Labels: h.Labels, User: user, At: now})
		h.byUser[user] = s
	}
	return s
}

// UID is the owner of the environment, unless its state file is in doubt.
func (v *EnvView) UID() *snapshot.UID {
	if v.Env.OwnerMismatch {
		return nil
	}
	return &v.Env.UID
}

// deviceOfEnv is an attachment on a host.
type deviceOfEnv struct {
	device snapshot.DeviceIndex
	eid    snapshot.EnvID
}

// SparesUse reports whether an exempt process of the environment uses a device.
func (h *HostView) SparesUse(env *EnvView, index snapshot.DeviceIndex) bool {
	return h.ExemptUse(env, index) != Unused
}

// ExemptUse is what exempt processes of the environment prove about a device's use.
func (h *HostView) ExemptUse(env *EnvView, index snapshot.DeviceIndex) Evidence {
	return h.exemptUses[deviceOfEnv{index, env.Env.EID}]
}

func (h *HostView) key(p *snapshot.Process) snapshot.ProcessKey {
	return snapshot.ProcessKey{Host: h.Name, PID: p.PID, Start: p.Start}
}

// DeviceKey is the Key of a device that rules judge.
func (h *HostView) DeviceKey(index snapshot.DeviceIndex) string {
	if d := h.Devices[index]; d != nil {
		return d.Key()
	}
	return index.String()
}

// Stuck reports whether a process can't be ended.
func (h *HostView) Stuck(p *snapshot.Process) bool {
	_, stuck := h.stuckBecause(p)
	return stuck
}
