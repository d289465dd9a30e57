package companions

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/seed-3119e985/genv/enforce/policy"
	"github.com/seed-3119e985/genv/remote/controller"
	"github.com/seed-3119e985/genv/snapshot"
	"github.com/seed-3119e985/genv/snapshot/state/service"
)

// Hosts are told who may reserve what, and what these people have reserved elsewhere.
func TestBookingOf(t *testing.T) {
	file, err := policy.Parse("p.yaml", []byte("reservations:\n- {users: [alice], gpus: 2, at-once: 1}\n- {users: [\"%staff\"], gpus: 1}\n"))
	require.NoError(t, err)
	file.AskUnix(func(user, _ string) (member, known bool) { return false, user != "carol" })
	reserved := func(user snapshot.Username, id string) *snapshot.Snapshot {
		return &snapshot.Snapshot{Reservations: []snapshot.Reservation{{ID: id, Username: user, GPUs: 1}}}
	}
	cycle := &controller.Cycle{Policy: file}
	cycle.Cluster.Hosts = []snapshot.Host{{Name: "a", Snapshot: reserved("alice", "1")}, {Name: "b", Snapshot: reserved("alice", "2")}, {Name: "c", Snapshot: reserved("bob", "3")}, {Name: "d"}}
	require.Equal(t, &service.Booking{
		BookingRule: snapshot.BookingRule{GPUs: 2, AtOnce: 1}, Elsewhere: cycle.Cluster.Hosts[1].Snapshot.Reservations,
	}, bookingOf(cycle, "a", "alice"))
	require.Nil(t, bookingOf(cycle, "a", "bob"), "nothing")
	require.Equal(t, &service.Booking{Unknown: true}, bookingOf(cycle, "a", "carol"))
}
