// Package grant decides which GPUs a container gets, and in which environment, from the request in its config.json, the
// state files and the proof of its user; and what the container sees of it.
//
//	request, err := grant.Asked(config, nvidia)
//	granted, err := grant.Applicant{GPURequest: request, Proof: proof, …}.Apply(files) // under the lock
//	granted.SetVariables(config)
//
// The person who starts a container writes its config.json: nothing in it proves who that is. A proof comes from
// elsewhere. Without one, a container has an environment of its own that belongs to no person.
//
// Tokens prove who asked for a container that is about to start, since the engine doesn't tell its caller. They are
// one-time, and only in the memory of root's service:
//
//	text, err := tokens.Issue(grant.ProvedUser{UID: peer, EID: eid})  // asked by the user's docker shim
//	holder, ok := tokens.Redeem(text)                             // asked by root's container runtime
//
// RestartNotes remember for which user a container was started: a token proves that once, and `docker restart` uses the
// same one again. Only root's runtime writes and reads them. A note counts for the same container id, which all see,
// engine and token. It is removed when the engine no longer knows the container, at the latest RestartLife after its
// last start.
package grant

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/seed-3119e985/genv/snapshot"
	"github.com/seed-3119e985/genv/snapshot/hardware"
	"github.com/seed-3119e985/genv/snapshot/state"
	"github.com/seed-3119e985/genv/snapshot/state/change"
	"github.com/seed-3119e985/genv/snapshot/text"
)

// Nobody owns environments without a proved user, as the kernel shows users that don't exist.
const (
	Nobody         snapshot.UID      = 65534
	NobodyUsername snapshot.Username = "nobody"
)

// ErrRefused means that a container can't have the GPUs of its request.
var ErrRefused = errors.New("refused")

// Applicant is a container's request, and what is known about it.
type Applicant struct {
	GPURequest
	Proof     *ProvedUser  // for whom it is started; nil without proof
	Container string       // its ID
	PID       snapshot.PID // to register in the environment
	Now       snapshot.Date
	Username  snapshot.Username    // of the proved user
	Hardware  []hardware.BusDevice // known devices of this machine
	state.Availability
	// Shared says that users can write the state files. That proves no user: a container may use the devices of the
	// environment that it claims.
	Shared bool
}

// Granted is what a container gets.
type Granted struct {
	EID     snapshot.EnvID // empty if it has no environment
	Name    string
	Own     bool // the environment is the container's own
	Devices []snapshot.DeviceIndex
	UUIDs   []snapshot.GPUUUID // nil if one is unknown
	Memory  snapshot.Memory
	GPUs    bool // it asked for devices

	Registered bool // its processes keep the environment, its own or its proved user's, alive
}

// Apply registers a container's process, and attaches the devices of an environment of its own. Don't write the files
// after an error, which wraps ErrRefused, ErrRequest or one of package state.
func (c Applicant) Apply(f *state.Files) (Granted, error) {
	g := Granted{GPUs: c.AsksForGPUs()}
	if env := c.joined(f); env != nil {
		return c.join(f, env, g)
	}
	if !g.GPUs {
		return g, nil // it needs no environment
	}
	return c.own(f, g)
}

// joined returns the person's environment for a container; nil for its own.
func (c Applicant) joined(f *state.Files) *snapshot.Environment {
	switch {
	case c.Proof != nil && c.Proof.EID != "":
		env := f.Environment(c.Proof.EID)
		if env == nil || env.UID != c.Proof.UID { // it has ended since
			return nil
		}
		return env
	case c.Proof == nil && c.Shared && c.EID != "" && c.Count == 0:
		return f.Environment(c.EID)
	}
	return nil
}

func (c Applicant) join(f *state.Files, env *snapshot.Environment, g Granted) (Granted, error) {
	attached := f.AttachedTo(env.EID)
	wanted, err := c.wanted(f, attached)
	if err != nil {
		return g, err
	}
	if len(c.Minors) > 0 && len(change.Current(f, env.EID).Instances) > 0 {
		return g, fmt.Errorf("%w: environment %s has MIG instances, and a device node is of a whole GPU: use --gpus",
			ErrRefused, text.Shown(string(env.EID)))
	}
	for _, index := range wanted {
		if !slices.Contains(attached, index) {
			return g, fmt.Errorf("%w: GPU %d is not attached to environment %s, which has %s: run `genv attach` in "+
				"it first", ErrRefused, index, text.Shown(string(env.EID)), cmp.Or(text.JoinIndices(attached), "none"))
		}
	}
	if c.Count > 0 {
		if c.Count > len(attached) {
			return g, fmt.Errorf("%w: %d GPUs are more than environment %s has (%d): run `genv attach --count %d` "+
				"in it first", ErrRefused, c.Count, text.Shown(string(env.EID)), len(attached), c.Count)
		}
		wanted = attached[:c.Count]
	}
	g.EID, g.Name, g.Memory = env.EID, env.Config.Name, env.Config.GPUMemory
	if g.Registered = c.Proof != nil; g.Registered {
		activation := state.Activation{EID: env.EID, UID: env.UID, Username: env.Username, PID: c.PID, At: c.Now}
		if err := f.Activate(activation); err != nil {
			return g, err
		}
	}
	return g.with(f, wanted, c.Hardware), nil
}

func (c Applicant) own(f *state.Files, g Granted) (Granted, error) {
	uid, username := Nobody, NobodyUsername
	if c.Proof != nil {
		uid, username = c.Proof.UID, c.Username
	}
	if f.Devices == nil {
		return g, state.ErrNoDevices
	}
	all := make([]snapshot.DeviceIndex, len(f.Devices))
	for i := range f.Devices {
		all[i] = f.Devices[i].Index
	}
	wanted, err := c.wanted(f, all)
	if err != nil {
		return g, err
	}
	const short = 12 // digits of the ID, as docker prints it
	eid := f.FreeID(c.Container[:min(short, len(c.Container))])
	config := snapshot.EnvConfig{Name: c.Called, GPUMemory: c.Memory}
	if c.Count > 0 {
		config.GPUs = &c.Count
	}
	activation := state.Activation{EID: eid, UID: uid, Username: username, PID: c.PID, Config: config, At: c.Now}
	if err := f.Activate(activation); err != nil {
		return g, err
	}
	attached, err := f.Attach(state.AttachRequest{
		EID: eid, Count: c.Count, Indices: wanted, Memory: c.Memory, OverSubscribe: c.OverSubscribe, At: c.Now,
		Availability: c.Availability,
	})
	if err != nil {
		return g, explained(err)
	}
	g.EID, g.Name, g.Memory, g.Own, g.Registered = eid, config.Name, c.Memory, true, true
	return g.with(f, attached, c.Hardware), nil
}

func explained(err error) error {
	const maxHolders = 8
	unavailable, ok := errors.AsType[*state.UnavailableError](err)
	if !ok || len(unavailable.Conflicts) == 0 {
		return err
	}
	var holders []string
	for _, conflict := range unavailable.Conflicts[:min(len(unavailable.Conflicts), maxHolders)] {
		holders = append(holders, conflict.String())
	}
	return fmt.Errorf("%w (%s)", err, strings.Join(holders, "; "))
}

// wanted returns the devices that the request names; all stands for "all". It is empty for a request by number.
func (c Applicant) wanted(f *state.Files, all []snapshot.DeviceIndex) (list []snapshot.DeviceIndex, err error) {
	if c.Count > 0 {
		if c.All || len(c.Names)+len(c.Minors) > 0 {
			return nil, fmt.Errorf("%w: %s is a number of GPUs, and --device names some: use one of both",
				ErrRequest, GPUs)
		}
		return nil, nil
	}
	if c.All {
		list = slices.Clone(all)
	}
	for _, name := range c.Names {
		index, err := c.index(f, name)
		if err != nil {
			return nil, err
		}
		if f.Device(index) == nil {
			return nil, f.NoDevice(index)
		}
		list = append(list, index)
	}
	for _, minor := range c.Minors {
		i := slices.IndexFunc(c.Hardware, func(d hardware.BusDevice) bool { return d.Minor != nil && *d.Minor == minor })
		if i < 0 {
			return nil, fmt.Errorf("%w: which GPU /dev/nvidia%d is isn't known: `sudo genv usage snapshot` finds out",
				ErrRefused, minor)
		}
		list = append(list, c.Hardware[i].Index)
	}
	slices.Sort(list)
	return slices.Compact(list), nil
}

// index finds a device by index, by UUID or the beginning of one, or by an attached MIG instance.
func (c Applicant) index(f *state.Files, name string) (snapshot.DeviceIndex, error) {
	if list, err := text.ParseIndices[snapshot.DeviceIndex](name); err == nil && len(list) == 1 {
		return list[0], nil
	}
	var found []snapshot.DeviceIndex
	eid := c.EID
	if c.Proof != nil {
		eid = cmp.Or(c.Proof.EID, eid)
	}
	if c.Shared || c.Proof != nil && c.Proof.EID != "" {
		for _, part := range change.Current(f, eid).Instances {
			if slices.Contains(part.Instances, snapshot.GPUUUID(name)) {
				found = append(found, part.Index)
			}
		}
	}
	for _, d := range c.Hardware {
		if len(name) > len("GPU-") && strings.HasPrefix(string(d.UUID), name) {
			found = append(found, d.Index)
		}
	}
	if len(found) != 1 {
		return 0, fmt.Errorf("%w: there is no GPU %s on this machine", ErrRefused, text.Quoted(name, maxShown))
	}
	return found[0], nil
}

// with adds the devices, or the environment's MIG instances of them.
func (g Granted) with(f *state.Files, list []snapshot.DeviceIndex, known []hardware.BusDevice) Granted {
	g.Devices = list
	now := change.Current(f, g.EID)
	var uuids []snapshot.GPUUUID
	for _, index := range list {
		if parts := now.InstancesOf(index); parts != nil {
			uuids = append(uuids, parts...)
			continue
		}
		own, ok := hardware.UUIDs(known, []snapshot.DeviceIndex{index})
		if !ok && now.Instances == nil {
			return g // then indices name all
		}
		uuids = append(uuids, own...)
	}
	g.UUIDs = uuids
	return g
}
