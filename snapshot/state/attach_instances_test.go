package state_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/seed-3119e985/genv/snapshot"
	"github.com/seed-3119e985/genv/snapshot/state"
)

type uuids = []snapshot.GPUUUID

// instance is a MIG instance of 10 GiB.
func instance(index snapshot.DeviceIndex, uuid snapshot.GPUUUID) state.InstanceRequest {
	return state.InstanceRequest{Index: index, UUID: uuid, Memory: snapshot.MustMemory("10gi")}
}

// partitioned are devices of 80 GB: 0 is whole, 1 has a share of 4g for an environment, and 2
// has the MIG instances MIG-a for 1667 and MIG-b for 2020.
func partitioned() state.Files {
	b := state.Files{Devices: gpus(4)}
	part := func(eid snapshot.EnvID, uuid snapshot.GPUUUID) snapshot.Attachment {
		a := attachment(eid, "10gi")
		a.Instances = uuids{uuid}
		return a
	}
	b.Devices[0].Attachments = []snapshot.Attachment{attachment("1667", "")}
	b.Devices[1].Attachments = []snapshot.Attachment{attachment("2020", "4g")}
	b.Devices[2].Attachments = []snapshot.Attachment{part("1667", "MIG-a"), part("2020", "MIG-b")}
	return b
}

func TestAttachInstances(t *testing.T) {
	for name, row := range map[string]struct {
		request state.AttachRequest
		want    snapshot.Attachment // to device 2
	}{
		"a free one": {
			state.AttachRequest{EID: "9", Instances: []state.InstanceRequest{instance(2, "MIG-c")}},
			snapshot.Attachment{GPUMemory: snapshot.MustMemory("10gi"), Time: at("12:00:00"), Instances: uuids{"MIG-c"}},
		},
		"two": {
			state.AttachRequest{EID: "9", Instances: []state.InstanceRequest{instance(2, "MIG-c"), instance(2, "MIG-d")}},
			snapshot.Attachment{GPUMemory: snapshot.MiB(20 << 10), Time: at("12:00:00"), Instances: uuids{"MIG-c", "MIG-d"}},
		},
		"another one": {
			state.AttachRequest{EID: "1667", Instances: []state.InstanceRequest{instance(2, "MIG-c")}},
			snapshot.Attachment{GPUMemory: snapshot.MiB(20 << 10), Time: at("10:00:00"), Instances: uuids{"MIG-a", "MIG-c"}},
		},
		"one it has already": {
			state.AttachRequest{EID: "1667", Instances: []state.InstanceRequest{instance(2, "MIG-a")}},
			snapshot.Attachment{GPUMemory: snapshot.MustMemory("10gi"), Time: at("10:00:00"), Instances: uuids{"MIG-a"}},
		},
		"with a capacity": {
			state.AttachRequest{EID: "9", Memory: snapshot.MustMemory("4g"), Instances: []state.InstanceRequest{instance(2, "MIG-c")}},
			snapshot.Attachment{GPUMemory: snapshot.MustMemory("4g"), Time: at("12:00:00"), Instances: uuids{"MIG-c"}},
		},
		"of an unknown size": {
			state.AttachRequest{EID: "9", Instances: []state.InstanceRequest{{Index: 2, UUID: "MIG-c"}}},
			snapshot.Attachment{Time: at("12:00:00"), Instances: uuids{"MIG-c"}},
		},
		"over-subscribed": {
			state.AttachRequest{EID: "9", OverSubscribe: true, Instances: []state.InstanceRequest{instance(2, "MIG-a")}},
			snapshot.Attachment{GPUMemory: snapshot.MustMemory("10gi"), Time: at("12:00:00"), Instances: uuids{"MIG-a"}},
		},
	} {
		t.Run(name, func(t *testing.T) {
			b := partitioned()
			row.request.At, row.want.EID = at("12:00:00"), row.request.EID
			got, err := b.Attach(row.request)
			require.NoError(t, err)
			require.Contains(t, got, snapshot.DeviceIndex(2))
			require.Equal(t, &row.want, b.Devices[2].Attachment(row.request.EID))
			data, err := b.Encode(state.Devices)
			require.NoError(t, err)
			require.NotContains(t, string(data), "MIG", "1.4.3 crashes at keys that it doesn't know")
		})
	}
}

func TestAttachInstancesRefusesAndChangesNothing(t *testing.T) {
	for name, row := range map[string]struct {
		request state.AttachRequest
		is      error
	}{
		"another's":                {state.AttachRequest{Instances: []state.InstanceRequest{instance(2, "MIG-c"), instance(2, "MIG-b")}}, state.ErrUnavailable},
		"of a whole device":        {state.AttachRequest{Instances: []state.InstanceRequest{instance(0, "MIG-x")}}, state.ErrUnavailable},
		"of a shared device":       {state.AttachRequest{Instances: []state.InstanceRequest{instance(1, "MIG-x")}}, state.ErrUnavailable},
		"of no device":             {state.AttachRequest{Instances: []state.InstanceRequest{instance(9, "MIG-x")}}, state.ErrUnavailable},
		"and a count":              {state.AttachRequest{Count: 1, Instances: []state.InstanceRequest{instance(2, "MIG-c")}}, state.ErrRequest},
		"and an index":             {state.AttachRequest{Indices: indices{3}, Instances: []state.InstanceRequest{instance(2, "MIG-c")}}, state.ErrRequest},
		"of a device that is mine": {state.AttachRequest{EID: "1667", Instances: []state.InstanceRequest{instance(0, "MIG-x")}}, state.ErrRequest},
	} {
		t.Run(name, func(t *testing.T) {
			b := partitioned()
			if row.request.EID == "" {
				row.request.EID = "9"
			}
			_, err := b.Attach(row.request)
			require.ErrorIs(t, err, row.is)
			require.Equal(t, partitioned(), b)
		})
	}
}

// TestAttachNextToInstances: a whole device has no instances of others, and a share needs room.
func TestAttachNextToInstances(t *testing.T) {
	b := partitioned()
	_, err := b.Attach(state.AttachRequest{EID: "9", Indices: indices{2}})
	require.ErrorIs(t, err, state.ErrUnavailable)
	_, err = b.Attach(state.AttachRequest{EID: "9", Indices: indices{2}, Memory: snapshot.MustMemory("70g")})
	require.ErrorIs(t, err, state.ErrUnavailable)
	require.Equal(t, indices{}, append(indices{}, b.Detach("2020")...))
	_, err = b.Attach(state.AttachRequest{EID: "9", Instances: []state.InstanceRequest{instance(2, "MIG-b")}})
	require.NoError(t, err)
}
