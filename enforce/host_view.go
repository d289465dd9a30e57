package enforce

import (
	"time"

	"github.com/seed-3119e985/genv/enforce/contents"
	"github.com/seed-3119e985/genv/enforce/order"
	"github.com/seed-3119e985/genv/snapshot"
)

// hostView is what the rules see of a host: its snapshot without what is
// exempt, the indices that they need, and the draft of its order. A snapshot
// may list many thousand environments (a hostile host's does), so nothing here
// is looked up by scanning.
type hostView struct {
	j        *judgement
	name     snapshot.Hostname
	host     *snapshot.Host
	position int           // in the cluster
	at       time.Time     // when it was asked: all ages are as of then
	silence  time.Duration // for how long it didn't answer before
	isNew    bool          // no cycle has judged this look before
	acted    bool          // the outcome of an order came since it was asked for
	fresh    bool          // something may be done by this look
	advances bool          // it is the first look of its round
	labels   map[string]string
	snapshot *snapshot.Snapshot
	settings *Settings // of the host, for all users
	zone     *time.Location
	byUser   map[snapshot.Username]*Settings
	inOrder  []*envView // as the host listed them, without those that are exempt
	in       []*envView // of each process the environment that it is in
	envs     map[snapshot.EnvID]*envView
	// exempt are the processes that no rule may touch, and exemptUses what those
	// of them that are in an environment use: no cap takes that.
	exempt     map[snapshot.PID]bool
	exemptUses map[deviceOfEnv]contents.Evidence
	// drawnOn is what processes that draw on a screen use of their environments. It is in use, and rules
	// judge what is attached.
	drawnOn map[deviceOfEnv]contents.Evidence
	kept    map[snapshot.DeviceIndex]string // see keptGPUs
	// exemptDevices are those that an operator exempted, that have failed, or that people can't
	// attach.
	exemptDevices map[snapshot.DeviceIndex]bool
	devices       map[snapshot.DeviceIndex]*snapshot.Device // the others
	// gpusByModel are how many GPUs work and aren't exempt, whatever is attached to them; those of an unknown model
	// by "".
	gpusByModel map[string]int
	// unknownOn are the processes on a device whose environment is unknown.
	unknownOn map[snapshot.DeviceIndex][]*snapshot.Process
	holders   []holder
	users     map[snapshot.DeviceIndex][]*snapshot.Process // of devices; nil until findUsers
	more      []*snapshot.Process                          // for each account of which something isn't in the snapshot
	instances contents.Instances
	notes     int // how many there are
	order.Draft
	// sharedBoot is its boot id if another host reports it, too.
	sharedBoot string
}

// envView is a registered environment with its processes and attachments.
type envView struct {
	contents.Contents
	env      *snapshot.Environment
	exempt   bool
	settings *Settings // of its user here
}

// ask asks the policy about a user on this host, once a cycle.
func (h *hostView) ask(policy Policy, user snapshot.Username, now time.Time) *Settings {
	s := h.byUser[user]
	if s == nil {
		s = policy.Settings(Query{Host: h.name, Labels: h.labels, User: user, At: now})
		h.byUser[user] = s
	}
	return s
}

// uid is the owner of the environment, unless its state file is in doubt.
func (v *envView) uid() *snapshot.UID {
	if v.env.OwnerMismatch {
		return nil
	}
	return &v.env.UID
}

// deviceOfEnv is an attachment on a host.
type deviceOfEnv struct {
	device snapshot.DeviceIndex
	eid    snapshot.EnvID
}

// sparesUse reports whether an exempt process of the environment uses a device.
func (h *hostView) sparesUse(env *envView, index snapshot.DeviceIndex) bool {
	return h.exemptUses[deviceOfEnv{index, env.env.EID}] != contents.Unused
}

func (h *hostView) key(p *snapshot.Process) snapshot.ProcessKey {
	return snapshot.ProcessKey{Host: h.name, PID: p.PID, Start: p.Start}
}

// deviceKey is the Key of a device that rules judge.
func (h *hostView) deviceKey(index snapshot.DeviceIndex) string {
	if d := h.devices[index]; d != nil {
		return d.Key()
	}
	return index.String()
}

// These, and what is drafted for the host, are a caps.HostState.

func (h *hostView) Position() int      { return h.position }
func (h *hostView) SharedBoot() string { return h.sharedBoot }

func (h *hostView) Stuck(p *snapshot.Process) bool {
	_, stuck := h.stuckBecause(p)
	return stuck
}
