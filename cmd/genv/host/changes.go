package host

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/user"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/seed-3119e985/genv/enforce"
	"github.com/seed-3119e985/genv/remote/live/socket"
	"github.com/seed-3119e985/genv/snapshot"
	"github.com/seed-3119e985/genv/snapshot/gpus"
	"github.com/seed-3119e985/genv/snapshot/local"
	"github.com/seed-3119e985/genv/snapshot/nvidiasmi"
	"github.com/seed-3119e985/genv/snapshot/state"
	"github.com/seed-3119e985/genv/snapshot/state/change"
	"github.com/seed-3119e985/genv/snapshot/state/service"
)

const looksFor = time.Second // answers to users are shared so long

type changes struct {
	host          *host
	devices, envs recent[json.RawMessage]
	gpus          recent[*snapshot.Snapshot]
	listings      recent[[]snapshot.Device]
}

// Change implements service.Backend. Later answers show the change.
func (b *changes) Change(
	ctx context.Context, c change.Change, by change.Requester, turn func(context.Context) (func(), error),
) (change.Result, error) {
	result, err := service.Changer{
		Store: b.host.Store, Instances: b.host.Instances, Turn: turn, ListDevices: b.listDevices,
	}.Change(ctx, c, by)
	if err == nil {
		for _, outdated := range []*atomic.Bool{&b.devices.outdated, &b.envs.outdated, &b.gpus.outdated} {
			outdated.Store(true)
		}
	}
	return result, err
}

func (b *changes) listDevices(ctx context.Context) ([]snapshot.Device, error) {
	return b.listings.get(5*time.Second, func() ([]snapshot.Device, error) {
		return b.host.Machine.ListDevices(context.WithoutCancel(ctx))
	})
}

// Look implements service.Backend: the documents of `genv usage snapshot --type devices` and `--type envs`, and of
// `genv gpus`, reduced to what /proc shows the user.
func (b *changes) Look(ctx context.Context, name string, by service.Viewer) (json.RawMessage, error) {
	ctx = context.WithoutCancel(ctx)
	document := func() (json.RawMessage, error) { return b.host.view(ctx, name) }
	switch name {
	case "devices":
		return b.devices.get(looksFor, document)
	case "envs":
		return b.envs.get(looksFor, document)
	case "gpus":
		s, err := b.Snapshot(ctx)
		if err != nil {
			return nil, err
		}
		return json.Marshal(gpus.Of(b.visibleTo(s, by)))
	}
	return nil, fmt.Errorf("%w: there is no such document", state.ErrRequest)
}

// Snapshot implements service.Backend.
func (b *changes) Snapshot(ctx context.Context) (*snapshot.Snapshot, error) {
	ctx = context.WithoutCancel(ctx)
	return b.gpus.get(looksFor, func() (*snapshot.Snapshot, error) {
		// Users wait 8 s. Then they get nvidia-smi's earlier answer, if there is one.
		age := local.Age{Oldest: enforce.DefaultMaxAge, Until: time.Now().Add(8 * time.Second)}
		s, err := b.host.snapshot(ctx, age)
		if errors.Is(err, nvidiasmi.ErrTimeout) { // no earlier answer
			s, err = b.host.snapshot(ctx, local.Age{Oldest: enforce.DefaultMaxAge})
		}
		return s, err
	})
}

func (b *changes) visibleTo(s *snapshot.Snapshot, by service.Viewer) *snapshot.Snapshot {
	hiding := b.host.Machine.Proc.Hiding()
	operators, _ := user.LookupGroup(socket.Group) // may not exist
	if !hiding.On || by.UID == 0 || slices.ContainsFunc(by.Groups, func(gid uint32) bool {
		g := strconv.FormatUint(uint64(gid), 10)
		return g == hiding.Group || operators != nil && g == operators.Gid
	}) {
		return s
	}
	visible := *s
	visible.Processes = slices.Clone(s.Processes)
	for i := range visible.Processes {
		if p := &visible.Processes[i]; p.UID == nil || *p.UID != by.UID {
			p.Command, p.Name = "", ""
		}
	}
	return &visible
}

// rootsView asks root's service for a document, because a guard hides devices from other users' nvidia-smi. ok is false
// if the state isn't root's or, with a warning, if the service doesn't answer.
func (h *host) rootsView(ctx context.Context, name string) (document []byte, ok bool, warning string) {
	if h.privileged || !slices.Contains([]string{"devices", "envs", "gpus"}, name) || h.Store.MayWrite() {
		return nil, false, ""
	}
	document, err := h.Service.Look(ctx, name)
	if err != nil {
		return nil, false, fmt.Sprintf("uid %d sees these GPUs, which may not be all: %v", os.Geteuid(), err)
	}
	return document, true, ""
}

// recent keeps an answer for a while. Concurrent callers share one.
type recent[V any] struct {
	mu    sync.Mutex
	at    time.Time
	begun time.Time // start of the question
	value V
	err   error

	outdated atomic.Bool // something has changed since begun
}

// get asks if the answer is older than age or outdated. A question that began while the caller waited is new enough.
func (r *recent[V]) get(age time.Duration, ask func() (V, error)) (V, error) {
	came := time.Now()
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.begun.Before(came) && (r.outdated.Swap(false) || r.at.IsZero() || time.Since(r.at) > age) {
		r.begun = time.Now()
		r.value, r.err = ask()
		r.at = time.Now()
	}
	return r.value, r.err
}

func (b *changes) reservations() *service.Reservations {
	return &service.Reservations{
		Load: b.host.Store.Reservations, Save: b.host.Store.SaveReservations, Believed: service.ClockBelieved,
		GPUs: func(ctx context.Context) (int, error) {
			files, err := b.host.Devices(ctx, false)
			return len(files.Devices), err
		},
	}
}

// mayHold reports whether the owner of a reservation has a GPU here, attached or used by a process, or can't because
// others have all. If only GPUs with unknown users can be the owner's, they must be enough for the reservation.
func mayHold(s *snapshot.Snapshot, b *snapshot.Reservation) bool {
	users := make(map[snapshot.DeviceIndex][]*snapshot.UID) // nil for unknown
	add := func(uid *snapshot.UID, list []snapshot.DeviceIndex) {
		for _, index := range list {
			users[index] = append(users[index], uid)
		}
	}
	for i := range s.Devices {
		if s.Devices[i].ProcessesUnknown {
			add(nil, []snapshot.DeviceIndex{s.Devices[i].Index})
		}
	}
	for i := range s.Processes {
		add(s.Processes[i].CountsForUID(), s.Processes[i].Indices())
	}
	for _, more := range s.More {
		add(more.UID, more.GPUs)
	}
	for i := range s.Environments {
		add(&s.Environments[i].UID, snapshot.AttachedTo(s.Devices, s.Environments[i].EID))
	}
	may, free := 0, false
	for i := range s.Devices {
		list := users[s.Devices[i].Index]
		free = free || len(list) == 0 && s.Devices[i].Works()
		known := slices.DeleteFunc(slices.Clone(list), func(uid *snapshot.UID) bool { return uid == nil })
		if slices.ContainsFunc(known, func(uid *snapshot.UID) bool { return *uid == b.UID }) {
			return true
		}
		if len(list) > 0 && len(known) == 0 {
			may++
		}
	}
	return may >= b.GPUs || !free
}
