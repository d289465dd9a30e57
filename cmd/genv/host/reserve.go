package host

import (
	"context"
	"errors"

	"github.com/seed-3119e985/genv/snapshot"
	"github.com/seed-3119e985/genv/snapshot/state"
	"github.com/seed-3119e985/genv/snapshot/state/service"
)

// reservations are those of this host, in root's note.
func (b *changes) reservations() *service.Reservations {
	return &service.Reservations{
		Load: b.host.Store.Reservations, Save: b.host.Store.SaveReservations,
		GPUs: func(ctx context.Context) (int, error) {
			files, err := b.host.Store.Read(ctx)
			if errors.Is(err, state.ErrNoDevices) {
				var found []snapshot.Device
				if found, err = b.listDevices(ctx); err == nil {
					files, err = b.host.Store.RegisterDevices(ctx, found)
				}
			}
			return len(files.Devices), err
		},
	}
}

// holders finds who has a GPU of this host: attached, or used by a process.
func (b *changes) holders(ctx context.Context) func() (map[snapshot.UID]bool, error) {
	return func() (map[snapshot.UID]bool, error) {
		s, err := b.Snapshot(ctx)
		if err != nil {
			return nil, err
		}
		return holdersIn(s)
	}
}

// errHoldersUnknown says that anybody may have a GPU.
var errHoldersUnknown = errors.New("it is unknown whose processes are on the GPUs")

func holdersIn(s *snapshot.Snapshot) (map[snapshot.UID]bool, error) {
	held := make(map[snapshot.UID]bool)
	for i := range s.Devices {
		if s.Devices[i].ProcessesUnknown {
			return nil, errHoldersUnknown
		}
	}
	for i := range s.Processes {
		switch uid := s.Processes[i].CountedUID(); {
		case len(s.Processes[i].Usage) == 0:
		case uid == nil:
			return nil, errHoldersUnknown
		default:
			held[*uid] = true
		}
	}
	for _, more := range s.More {
		if more.UID == nil {
			return nil, errHoldersUnknown
		}
		held[*more.UID] = true
	}
	for i := range s.Environments {
		if env := &s.Environments[i]; len(snapshot.AttachedTo(s.Devices, env.EID)) > 0 {
			held[env.UID] = true
		}
	}
	return held, nil
}
