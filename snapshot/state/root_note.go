package state

import (
	"cmp"
	"maps"
	"slices"
	"time"

	"github.com/seed-3119e985/genv/snapshot"
	"github.com/seed-3119e985/genv/snapshot/text"
)

// RootNote is what root's looks at the state files found since boot. It bounds the times that users write for
// attachments: one dated 9:00 counts from 10:00 if root's look at 10:00 didn't find it, but the one at 10:05 did.
type RootNote struct {
	At           snapshot.StartTime `json:"at"` // of the last look; 0: none
	Environments []SeenEnvironment  `json:"envs,omitempty"`
	Attachments  []seenAttachment   `json:"attachments,omitempty"`
	// GPUs has the GPU of each index, from the last answer of nvidia-smi.
	GPUs       map[snapshot.DeviceIndex]snapshot.GPUUUID `json:"gpus,omitempty"`
	Registered bool                                      `json:"registered,omitempty"` // there was a devices.json
	Earlier    []EnvironmentOwner                        `json:"earlier,omitempty"`    // in no file now, oldest first
}

// EnvironmentOwner is an environment and its user.
type EnvironmentOwner struct {
	EID snapshot.EnvID `json:"eid"`
	UID snapshot.UID   `json:"uid"`
}

// EnvironmentKey identifies an environment in the files. A new creation time makes it another environment.
type EnvironmentKey struct {
	EnvironmentOwner
	Written snapshot.Date `json:"creation"`
}

// SeenEnvironment is an environment, the start of its age, and its registered processes.
type SeenEnvironment struct {
	EnvironmentKey
	Since  snapshot.StartTime                  `json:"since"`
	Starts map[snapshot.PID]snapshot.StartTime `json:"start_times,omitempty"` // 0 if unknown
}

type attachmentKey struct {
	EID   snapshot.EnvID       `json:"eid"`
	Index snapshot.DeviceIndex `json:"device"`
}

// seenAttachment is an attachment and the start of its age. GPUs are all that its index meant since it was made.
type seenAttachment struct {
	attachmentKey
	Written snapshot.Date      `json:"time"`
	Since   snapshot.StartTime `json:"since"`
	GPUs    []snapshot.GPUUUID `json:"gpus,omitempty"`
}

const maxEarlier = 4096 // bound on remembered environments: users can register any number

// KeyOf is the key of an environment.
func KeyOf(e *snapshot.Environment) EnvironmentKey {
	return EnvironmentKey{EnvironmentOwner{e.EID, e.UID}, e.Creation}
}

// ByKey indexes the noted environments.
func (s *RootNote) ByKey() map[EnvironmentKey]*SeenEnvironment {
	noted := make(map[EnvironmentKey]*SeenEnvironment, len(s.Environments))
	for i := range s.Environments {
		e := &s.Environments[i]
		noted[e.EnvironmentKey] = e
	}
	return noted
}

// Apply sets the GPUs of the indices, and since when environments and attachments count. An attachment that was made
// again is new, unless its index had become another GPU.
func (s *RootNote) Apply(f *Files) {
	f.earlier = make(map[EnvironmentOwner]bool, len(s.Earlier))
	for _, e := range s.Earlier {
		f.earlier[e] = true
	}
	environments := s.ByKey()
	for key := range environments {
		f.earlier[key.EnvironmentOwner] = true
	}
	for i := range f.Environments {
		e := &f.Environments[i]
		if e.Since = 0; environments[KeyOf(e)] != nil {
			e.Since = environments[KeyOf(e)].Since
		}
	}
	s.applyDevices(f)
}

func (s *RootNote) applyDevices(f *Files) {
	for i := range f.Devices {
		d := &f.Devices[i]
		d.UUID = cmp.Or(s.GPUs[d.Index], d.UUID)
	}
	attachments := make(map[attachmentKey]*seenAttachment, len(s.Attachments))
	for i := range s.Attachments {
		attachments[s.Attachments[i].attachmentKey] = &s.Attachments[i]
	}
	f.madeTo = make(map[attachmentKey][]snapshot.GPUUUID, len(attachments))
	for i := range f.Devices {
		d := &f.Devices[i]
		for k := range d.Attachments {
			a := &d.Attachments[k]
			at := attachmentKey{a.EID, d.Index}
			seen, gpus := attachments[at], withGPU(nil, d.UUID)
			switch {
			case seen == nil:
			case seen.Written == a.Time:
				a.Since, gpus = seen.Since, seen.GPUs
			case !slices.Equal(seen.GPUs, gpus): // its user only confirms the present index
				a.Since = seen.Since
			}
			f.madeTo[at] = gpus
		}
	}
	f.identify()
}

func withGPU(gpus []snapshot.GPUUUID, now snapshot.GPUUUID) []snapshot.GPUUUID {
	const maxGPUs = 64
	if len(gpus) == maxGPUs {
		return gpus
	}
	return with(gpus, now)
}

// identify marks devices with unknown attachments: since the attachment, its index became another GPU, or its GPU got
// another index. The jobs may run on any of these GPUs.
func (f *Files) identify() {
	byUUID := make(map[snapshot.GPUUUID]*snapshot.Device, len(f.Devices))
	for i := range f.Devices {
		f.Devices[i].Unidentified = false
		byUUID[f.Devices[i].UUID] = &f.Devices[i]
	}
	delete(byUUID, "")
	for i := range f.Devices {
		d := &f.Devices[i]
		for k := range d.Attachments {
			gpus := withGPU(f.madeTo[attachmentKey{d.Attachments[k].EID, d.Index}], d.UUID)
			d.Unidentified = d.Unidentified || len(gpus) > 1
			for _, gpu := range gpus {
				if now := byUUID[gpu]; now != nil && (len(gpus) > 1 || now != d) {
					now.Unidentified = true
				}
			}
		}
	}
}

// WarnRenumbered warns of attachments that must be made again.
func (f *Files) WarnRenumbered() {
	const maxRenumbered = 20
	named := 0
	for i := range f.Devices {
		d := &f.Devices[i]
		for k := range d.Attachments {
			eid := d.Attachments[k].EID
			gpus := withGPU(f.madeTo[attachmentKey{eid, d.Index}], d.UUID)
			if len(gpus) < 2 || named == maxRenumbered {
				continue
			}
			named++
			f.Warn("GPU %s was another GPU since environment %s attached it: what is attached to these GPUs is"+
				" unknown until it is attached again (genv attach --refresh in its shell)",
				d.Index, text.Shown(string(eid)))
		}
	}
}

// WasRegistered says whether root saw this user's environment since boot. 1.4.3 drops it when its shell ends.
func (f *Files) WasRegistered(eid snapshot.EnvID, uid snapshot.UID) bool {
	return f.earlier[EnvironmentOwner{eid, uid}]
}

// Look sets Since of new entries, and returns the next note. No age begins before the first look. wall is in the
// machine's zone, now counts like start times, and start returns a registered process's start time, 0 if unknown.
func (s *RootNote) Look(f *Files, wall time.Time, now snapshot.StartTime,
	start func(*snapshot.Environment, snapshot.PID) snapshot.StartTime,
) RootNote {
	if now == 0 {
		return *s
	}
	next := RootNote{At: now, Registered: f.Devices != nil, GPUs: map[snapshot.DeviceIndex]snapshot.GPUUUID{}}
	for i := range f.Environments {
		e := &f.Environments[i]
		e.Since = s.since(e.Since, e.Creation, wall, now)
		seen := SeenEnvironment{KeyOf(e), e.Since, make(map[snapshot.PID]snapshot.StartTime, len(e.PIDs))}
		for _, pid := range e.PIDs {
			seen.Starts[pid] = start(e, pid)
		}
		next.Environments = append(next.Environments, seen)
	}
	for i := range f.Devices {
		d := &f.Devices[i]
		if d.UUID != "" {
			next.GPUs[d.Index] = d.UUID
		}
		for k := range d.Attachments {
			a := &d.Attachments[k]
			a.Since = s.since(a.Since, a.Time, wall, now)
			at := attachmentKey{a.EID, d.Index}
			gpus := withGPU(f.madeTo[at], d.UUID)
			next.Attachments = append(next.Attachments, seenAttachment{at, a.Time, a.Since, gpus})
		}
	}
	next.Earlier = s.Earlier
	return next
}

// KeepEarlier adds environments of the previous look that are now unregistered: in shared files they may not have
// ended.
func (s *RootNote) KeepEarlier(before *RootNote) {
	registered := make(map[EnvironmentOwner]bool, len(s.Environments))
	for i := range s.Environments {
		registered[s.Environments[i].EnvironmentOwner] = true
	}
	earlier := slices.Clone(s.Earlier)
	for i := range before.Environments {
		earlier = append(earlier, before.Environments[i].EnvironmentOwner)
	}
	earlier = slices.DeleteFunc(earlier, func(e EnvironmentOwner) bool { return registered[e] })
	s.Earlier = earlier[max(0, len(earlier)-maxEarlier):]
}

// since returns the start of an age: known, or if that is 0 the time that its user wrote, within bounds.
func (s *RootNote) since(known snapshot.StartTime, written snapshot.Date, wall time.Time, now snapshot.StartTime,
) snapshot.StartTime {
	switch {
	case known != 0:
		return min(known, now)
	case s.At == 0:
		return now
	}
	at := now.Before(wall.Sub(written.In(wall.Location())))
	return min(max(at, s.At), now)
}

// Same says whether two notes are equal except for At.
func (s *RootNote) Same(o *RootNote) bool {
	sameEnvironment := func(a, b SeenEnvironment) bool {
		return a.EnvironmentKey == b.EnvironmentKey && a.Since == b.Since && maps.Equal(a.Starts, b.Starts)
	}
	sameAttachment := func(a, b seenAttachment) bool {
		return a.attachmentKey == b.attachmentKey && a.Written == b.Written && a.Since == b.Since &&
			slices.Equal(a.GPUs, b.GPUs)
	}
	return slices.EqualFunc(s.Environments, o.Environments, sameEnvironment) &&
		slices.EqualFunc(s.Attachments, o.Attachments, sameAttachment) &&
		maps.Equal(s.GPUs, o.GPUs) && slices.Equal(s.Earlier, o.Earlier) && s.Registered == o.Registered
}
