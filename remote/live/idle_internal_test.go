package live

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-3119e985/genv/remote"
	"github.com/seed-3119e985/genv/snapshot"
	"github.com/seed-3119e985/genv/snapshot/gpus"
)

var midnight = time.Date(2026, 11, 22, 0, 0, 0, 0, time.UTC)

// held is a GPU that a user holds in a state.
func held(state gpus.State, users ...snapshot.Username) gpus.GPU {
	g := gpus.GPU{State: state}
	for _, user := range users {
		g.Attached = append(g.Attached, gpus.Attachment{User: user})
		if state == gpus.Busy {
			g.Processes = append(g.Processes, gpus.Process{User: user})
		}
	}
	return g
}

func oneHost(list ...gpus.GPU) *FleetState {
	for i := range list {
		list[i].Index = snapshot.DeviceIndex(i)
	}
	return &FleetState{Hosts: []FleetHost{{Name: "a", GPUs: list}}}
}

func TestIdleSince(t *testing.T) {
	feed := NewFeed(Options{Now: time.Now})
	later := midnight.Add(time.Minute)
	feed.idle.look(oneHost(held(gpus.Attached, "alice"), held(gpus.Idle, "bob"), held(gpus.Busy, "bob"), held(gpus.Free)), midnight)
	feed.idle.look(oneHost(held(gpus.Idle, "alice"), held(gpus.Idle, "alice"), held(gpus.Busy, "bob"), held(gpus.Free)), later)
	require.Equal(t, midnight, feed.IdleSince("a", 0))
	require.Equal(t, later, feed.IdleSince("a", 1), "of another user")
	require.Zero(t, feed.IdleSince("a", 2))
	require.Zero(t, feed.IdleSince("a", 3))
	failed := oneHost(held(gpus.Unknown))
	failed.Hosts[0].Failure = &remote.Failure{}
	feed.idle.look(failed, later.Add(time.Minute))
	require.Zero(t, feed.IdleSince("a", 0), "it isn't known while the host fails")
	feed.idle.look(oneHost(held(gpus.Idle, "alice")), later.Add(2*time.Minute))
	require.Equal(t, later.Add(2*time.Minute), feed.IdleSince("a", 0))
}
