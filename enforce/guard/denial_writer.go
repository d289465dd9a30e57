package guard

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"github.com/seed-3119e985/genv/snapshot"
	"github.com/seed-3119e985/genv/snapshot/hardware"
	"github.com/seed-3119e985/genv/snapshot/proc"
	"github.com/seed-3119e985/genv/snapshot/watch"
)

// denialWriter keeps the list of denials, and passes new ones on; other opens go to those who wait for them.
type denialWriter struct {
	reader proc.ReaderProcess // remembers which processes do not answer: the stat of one in execve(2) can take for ever
	*Keeper
	opens   *watch.OpenLog
	events  chan Denial
	missed  atomic.Uint64  // events that there was no room for
	writing sync.WaitGroup // what writes files, after the last event as well
	devices atomic.Pointer[[]hardware.BusDevice]
}

const (
	maxEvents = 4096
	// writePause is how long events are collected before the list is written.
	writePause = 200 * time.Millisecond
)

func startDenialWriter(ctx context.Context, k *Keeper) *denialWriter {
	d := &denialWriter{Keeper: k, opens: watch.NewOpenLog(k.RunDir), events: make(chan Denial, maxEvents)}
	d.know(nil)
	d.writing.Go(func() { d.keep(ctx) })
	d.writing.Go(func() {
		d.opens.Run(ctx, func(err error) {
			k.Log.Error().Err(err).Msg("opens of GPUs can't be reported to those who wait for them")
		})
	})
	return d
}

// know sets the devices by which minors are named.
func (d *denialWriter) know(devices []hardware.BusDevice) { d.devices.Store(&devices) }

// take is called for each event of the kernel.
func (d *denialWriter) take(e Event) {
	// Without a PID, root's would be those of every look's nvidia-smi.
	if e.Kind != Denied && (e.PID != 0 || e.UID != 0) {
		d.opens.Add(e.PID)
	}
	if e.Kind != Denied && e.Kind != WouldDeny {
		return
	}
	uid, _ := proc.FS{Accounts: d.Accounts}.Account(e.UID) // the range, as long as that isn't known
	if uid == proc.UnknownAccount {
		uid = e.UID
	}
	o := Denial{UID: uid, Subordinate: uid != e.UID, PID: e.PID, Minor: e.Minor, Denied: e.Kind == Denied}
	if stat, err := (proc.FS{Reader: &d.reader}).Stat(e.PID); err == nil && e.PID != 0 &&
		snapshot.CheckText("name", stat.Name) == nil {
		o.Name = stat.Name
	}
	for _, device := range *d.devices.Load() {
		if device.Minor != nil && *device.Minor == e.Minor {
			index := device.Index
			o.Index, o.UUID = &index, device.UUID
		}
	}
	select {
	case d.events <- o:
	default:
		d.missed.Add(1)
	}
}

// keep adds events to the list, and writes it.
func (d *denialWriter) keep(ctx context.Context) {
	list, err := ReadDenials(d.RunDir)
	if err != nil {
		d.Log.Warn().Err(err).Msg("the denials so far can't be read: they are forgotten")
		list = NewDenials()
	}
	var write <-chan time.Time
	for {
		select {
		case <-ctx.Done():
			if write != nil {
				d.write(&list)
			}
			return
		case o := <-d.events:
			denial, isNew := list.Add(o, time.Now())
			if isNew {
				d.pass(&denial)
			}
			if write == nil {
				write = time.After(writePause)
			}
		case <-write:
			write = nil
			d.write(&list)
		}
	}
}

func (d *denialWriter) write(list *Denials) {
	list.Dropped += d.missed.Swap(0)
	if err := WriteDenials(d.RunDir, *list); err != nil {
		d.Log.Error().Err(err).Msg("the denials can't be written")
	}
}

// pass logs a new denial, and passes it on.
func (d *denialWriter) pass(denial *Denial) {
	what := "would be denied"
	if denial.Denied {
		what = "denied"
	}
	event := d.Log.Info().Uint32("uid", uint32(denial.UID)).Int32("pid", int32(denial.PID)).Str("program", denial.Name).
		Int("minor", denial.Minor)
	if denial.Index != nil {
		event = event.Int("device", int(*denial.Index))
	}
	event.Msg(what)
	if d.Denied != nil {
		d.Denied(*denial)
	}
}
