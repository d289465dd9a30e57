package local

import (
	"time"

	"github.com/seed-3119e985/genv/snapshot"
	"github.com/seed-3119e985/genv/snapshot/gpus"
	"github.com/seed-3119e985/genv/snapshot/hardware"
	"github.com/seed-3119e985/genv/snapshot/state/folder"
)

// LastLook is what root's genv saw last of the GPUs. It is for users whose own look takes too long.
type LastLook struct {
	Schema string     `json:"schema"`
	Time   time.Time  `json:"time"`
	GPUs   []gpus.GPU `json:"gpus"` // without their attachments and processes
}

const lastLookSchema = "genv.last-look/1"

// lastLook is not synced: it means nothing after a crash of the machine.
var lastLook = folder.Note[LastLook]{
	Name: "last-look.json", Max: 1 << 20, Mode: 0o644, Invalid: hardware.ErrGarbled,
	Check: func(l *LastLook) error { return folder.CheckSchema(l.Schema, lastLookSchema) },
}

// publishLook keeps what root's look found. Without it, users whose look takes too long get no GPUs.
func (c *Collector) publishLook(s *snapshot.Snapshot) {
	source := c.hardware()
	if !source.Root || source.Run == "" {
		return
	}
	list := gpus.Of(s)
	for i := range list {
		list[i].Attached, list[i].Processes = nil, nil
	}
	d, err := folder.MakePublic(source.Run)
	if err != nil {
		return
	}
	defer d.Close()
	_ = lastLook.Put(d, LastLook{lastLookSchema, c.now(), list})
}

// lastLookAge is how old a look of root's may be that counts.
const lastLookAge = time.Minute

// LastLook is what root's genv saw within the last minute; ok is false if that isn't known.
func (c *Collector) LastLook() (l LastLook, ok bool) {
	run := c.hardware().Run
	if run == "" {
		return l, false
	}
	l, err := lastLook.Read(run)
	return l, err == nil && c.now().Sub(l.Time) < lastLookAge
}

// Free are the GPUs that were free then.
func (l *LastLook) Free() []snapshot.DeviceIndex {
	free := []snapshot.DeviceIndex{}
	for i := range l.GPUs {
		if l.GPUs[i].State == gpus.Free {
			free = append(free, l.GPUs[i].Index)
		}
	}
	return free
}
