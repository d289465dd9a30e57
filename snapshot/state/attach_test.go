package state_test

import (
	"math"
	"strconv"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/seed-3119e985/genv/snapshot"
	use "github.com/seed-3119e985/genv/snapshot/gpus"
	"github.com/seed-3119e985/genv/snapshot/proc/proctest"
	"github.com/seed-3119e985/genv/snapshot/state"
)

type indices = []snapshot.DeviceIndex

// attachment is that of an environment; memory "" is the whole device.
func attachment(eid snapshot.EnvID, memory string) snapshot.Attachment {
	a := snapshot.Attachment{EID: eid, Time: at("10:00:00")}
	if memory != "" {
		a.GPUMemory = snapshot.MustMemory(memory)
	}
	return a
}

// recordedBooks are devices as in the recording of 1.4.3: 1667 has 0 and 1
// whole, 2020 has 4g on 3 and, over-subscribed, on 0.
func recordedBooks() state.Files {
	b := state.Files{Devices: gpus(8)}
	b.Devices[0].Attachments = []snapshot.Attachment{attachment("1667", ""), attachment("2020", "4g")}
	b.Devices[1].Attachments = []snapshot.Attachment{attachment("1667", "")}
	b.Devices[3].Attachments = []snapshot.Attachment{attachment("2020", "4g")}
	return b
}

func TestAttach(t *testing.T) {
	memory := snapshot.MustMemory
	unusable := map[snapshot.DeviceIndex]use.State{2: use.Unusable, 4: use.MIG}
	for _, tt := range []struct {
		name    string
		request state.AttachRequest
		want    indices
	}{
		{"the free devices, lowest index first", state.AttachRequest{EID: "9", Count: 2}, indices{2, 4}},
		{"what it has counts", state.AttachRequest{EID: "1667", Count: 2}, indices{0, 1}},
		{"nothing when it has more", state.AttachRequest{EID: "1667", Count: 1}, indices{0, 1}},
		{"what is missing to the count", state.AttachRequest{EID: "1667", Count: 3}, indices{0, 1, 2}},
		{"an index, and says all it has", state.AttachRequest{EID: "1667", Indices: indices{5}}, indices{0, 1, 5}},
		{"an index it has already", state.AttachRequest{EID: "1667", Indices: indices{0}}, indices{0, 1}},
		{"an index twice as once", state.AttachRequest{EID: "9", Indices: indices{7, 7}}, indices{7}},
		{"shared: least populated first", state.AttachRequest{EID: "9", Count: 1, Memory: memory("8g")}, indices{2}},
		{"shared: a populated one by index", state.AttachRequest{EID: "9", Indices: indices{3}, Memory: memory("8g")}, indices{3}},
		{"shared: populated ones last", state.AttachRequest{EID: "9", Count: 6, Memory: memory("8g")}, indices{2, 3, 4, 5, 6, 7}},
		{"shared: to the last byte", state.AttachRequest{EID: "9", Indices: indices{2}, Memory: memory("81920mi")}, indices{2}},
		{"over-subscribed: a taken one", state.AttachRequest{EID: "9", Indices: indices{0}, OverSubscribe: true}, indices{0}},
		{"over-subscribed: still least populated first", state.AttachRequest{EID: "9", Count: 7, OverSubscribe: true}, indices{1, 2, 3, 4, 5, 6, 7}},
		{"those with a screen last", state.AttachRequest{EID: "9", Count: 2, Availability: state.Availability{Last: indices{2, 5}}}, indices{4, 6}},
		{"those with a screen before busy ones", state.AttachRequest{EID: "9", Count: 5, Availability: state.Availability{Last: indices{2}, States: map[snapshot.DeviceIndex]use.State{7: use.Busy}}}, indices{2, 4, 5, 6, 7}},
		{"a screen by index", state.AttachRequest{EID: "9", Indices: indices{2}, Availability: state.Availability{Last: indices{2}}}, indices{2}},
		{"neither unusable ones nor instances", state.AttachRequest{EID: "9", Count: 2, Availability: state.Availability{States: unusable}}, indices{5, 6}},
		{"only those that are known to be free", state.AttachRequest{EID: "9", Count: 1, Availability: state.Availability{Only: indices{0, 6}}}, indices{6}},
		{"over-subscribed: unknown ones, too", state.AttachRequest{EID: "9", Indices: indices{5}, OverSubscribe: true, Availability: state.Availability{Only: indices{}}}, indices{5}},
		{"over-subscribed: not one that is kept, unless it is taken anyway", state.AttachRequest{EID: "9", Count: 2, OverSubscribe: true, Availability: state.Availability{Kept: indices{1, 2, 3, 4, 5, 6, 7}}}, indices{1, 3}},
		{"an instance", state.AttachRequest{EID: "9", Instances: []state.InstanceRequest{{Index: 4, UUID: "MIG-a"}}, Availability: state.Availability{States: unusable}}, indices{4}},
		{"over-subscribed: more than the memory", state.AttachRequest{EID: "9", Indices: indices{2}, Memory: memory("999g"), OverSubscribe: true}, indices{2}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			b := recordedBooks()
			tt.request.At = at("12:00:00")
			require.Equal(t, tt.want, proctest.Try(b.Attach(tt.request)).OK(t))
			require.Equal(t, tt.want, b.AttachedTo(tt.request.EID))
		})
	}
}

func TestAttachRecordsCapacityAndTime(t *testing.T) {
	b := recordedBooks()
	proctest.Try(b.Attach(state.AttachRequest{EID: "9", Count: 1, Memory: snapshot.MustMemory("4g"), At: at("12:00:00")})).OK(t)
	require.Equal(t, &snapshot.Attachment{EID: "9", GPUMemory: snapshot.MustMemory("4g"), Time: at("12:00:00")}, b.Devices[2].Attachment("9"))
}

func TestAttachRefusesAndChangesNothing(t *testing.T) {
	memory := snapshot.MustMemory
	for _, tt := range []struct {
		name    string
		request state.AttachRequest
		is      error
		message string
	}{
		{"more than there are", state.AttachRequest{EID: "9", Count: 9}, state.ErrUnavailable, "Requested more devices (9) than total available (8)"},
		{"more than there are, over-subscribed", state.AttachRequest{EID: "9", Count: 9, OverSubscribe: true}, state.ErrUnavailable, "Requested more devices (9) than total available (8)"},
		{"more than are free", state.AttachRequest{EID: "9", Count: 6}, state.ErrUnavailable, "Requested more devices (6) than currently available (5)"},
		{"more than are free, with some held", state.AttachRequest{EID: "1667", Count: 8}, state.ErrUnavailable, "Requested more devices (8) than currently available (7)"},
		{"a taken device", state.AttachRequest{EID: "9", Indices: indices{0}}, state.ErrUnavailable, "Device 0 is not available"},
		{"a shared device as a whole", state.AttachRequest{EID: "9", Indices: indices{3}}, state.ErrUnavailable, "Device 3 is not available"},
		{"a share of a whole device", state.AttachRequest{EID: "9", Indices: indices{1}, Memory: memory("1m")}, state.ErrUnavailable, "Device 1 is not available"},
		{"a byte too much", state.AttachRequest{EID: "9", Indices: indices{2}, Memory: memory("85899345921")}, state.ErrUnavailable, "Device 2 is not available"},
		{"a share that does not fit the rest", state.AttachRequest{EID: "9", Indices: indices{3}, Memory: memory("82g")}, state.ErrUnavailable, "Device 3 is not available"},
		{"one of two taken", state.AttachRequest{EID: "9", Indices: indices{2, 0}}, state.ErrUnavailable, "Device 0 is not available"},
		{"no such device", state.AttachRequest{EID: "9", Indices: indices{99}}, state.ErrUnavailable, "There is no GPU 99: this host has 8, see `genv gpus`"},
		{"a negative index", state.AttachRequest{EID: "9", Indices: indices{-1}}, state.ErrUnavailable, "There is no GPU -1: this host has 8, see `genv gpus`"},
		{"none", state.AttachRequest{EID: "9"}, state.ErrRequest, "not a valid request: 0 GPUs: ask for at least 1"},
		{"fewer than none", state.AttachRequest{EID: "9", Count: -1}, state.ErrRequest, "not a valid request: -1 GPUs: ask for at least 1"},
		{"both ways", state.AttachRequest{EID: "9", Count: 1, Indices: indices{2}}, state.ErrRequest, "not a valid request: give a number of GPUs or their indices, not both"},
		{"zero memory", state.AttachRequest{EID: "9", Count: 1, Memory: memory("0g")}, state.ErrRequest, "not a valid request: a capacity of 0g must be greater than zero"},
		{"one that is kept, over-subscribed", state.AttachRequest{EID: "9", Indices: indices{2}, OverSubscribe: true, Availability: state.Availability{Kept: indices{2}}}, state.ErrUnavailable, "GPU 2 is kept for people who wait: `genv gpus` names them, and --wait waits for the next turn"},
		{"no id", state.AttachRequest{Count: 1}, state.ErrRequest, "not a valid request: an environment needs an id"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			b := recordedBooks()
			_, err := b.Attach(tt.request)
			require.ErrorIs(t, err, tt.is)
			require.EqualError(t, err, tt.message)
			require.Equal(t, recordedBooks(), b)
		})
	}
}

func TestAttachRefusesAnIDWithControlCharacters(t *testing.T) {
	b := recordedBooks()
	require.ErrorIs(t, proctest.Try(b.Attach(state.AttachRequest{EID: "a\x1b[2J", Count: 1})).Err, state.ErrRequest)
}

func TestAttachNeedsToKnowTheDevices(t *testing.T) {
	var b state.Files
	require.ErrorIs(t, proctest.Try(b.Attach(state.AttachRequest{EID: "9", Count: 1})).Err, state.ErrNoDevices)
}

func TestCapacitiesThatOverflowLeaveNoRoom(t *testing.T) {
	huge := strconv.FormatInt(math.MaxInt64, 10)
	b := state.Files{Devices: gpus(1)}
	b.Devices[0].TotalMemory = snapshot.MustMemory(huge)
	b.Devices[0].Attachments = []snapshot.Attachment{attachment("1", huge), attachment("2", huge)}
	require.ErrorIs(t, proctest.Try(b.Attach(state.AttachRequest{EID: "9", Count: 1, Memory: snapshot.MustMemory("1")})).Err, state.ErrUnavailable)
}

func TestDetach(t *testing.T) {
	for _, tt := range []struct {
		name    string
		eid     snapshot.EnvID
		indices indices
		want    indices
	}{
		{"one", "1667", indices{1}, indices{0}},
		{"all", "1667", nil, nil},
		{"one that it has not", "1667", indices{5}, indices{0, 1}},
		{"one that there is not", "1667", indices{99}, indices{0, 1}},
		{"an environment without any", "9", nil, nil},
	} {
		t.Run(tt.name, func(t *testing.T) {
			b := recordedBooks()
			require.Equal(t, tt.want, b.Detach(tt.eid, tt.indices...))
			require.Equal(t, tt.want, b.AttachedTo(tt.eid))
			require.Equal(t, indices{0, 3}, b.AttachedTo("2020"), "others keep theirs")
		})
	}
}

// Devices that others may use are taken in the order of their states, and failed ones never.
func TestAttachTakesDevicesInTheOrderOfTheirStates(t *testing.T) {
	type states map[snapshot.DeviceIndex]use.State
	shared := func() []snapshot.Device { // GPU 0 is attached to another environment
		devices := gpus(4)
		devices[0].Attachments = []snapshot.Attachment{{EID: "2"}}
		return devices
	}
	for name, row := range map[string]struct {
		states states
		count  int
		over   bool
		want   indices
		refuse string
	}{
		"free ones":                            {nil, 1, false, indices{1}, ""},
		"the first is busy":                    {states{1: use.Busy}, 1, false, indices{2}, ""},
		"idle before busy":                     {states{1: use.Busy, 2: use.Unknown, 3: use.Idle}, 2, false, indices{1, 3}, ""},
		"unknown is last":                      {states{1: use.Unknown, 2: use.Busy, 3: use.Busy}, 2, false, indices{2, 3}, ""},
		"all are unknown":                      {states{1: use.Unknown, 2: use.Unknown, 3: use.Unknown}, 1, false, indices{1}, ""},
		"never a failed one":                   {states{1: use.Failed, 2: use.Unknown, 3: use.Unknown}, 2, false, indices{2, 3}, ""},
		"not even the last":                    {states{1: use.Failed}, 3, false, nil, "currently available (2); GPU 1 has failed"},
		"nor with over-subscription":           {states{1: use.Failed}, 4, true, nil, "currently available (3); GPU 1 has failed"},
		"over-subscribed: free before shared":  {states{3: use.Busy}, 3, true, indices{0, 1, 2}, ""},
		"over-subscribed: unused before used":  {states{1: use.Busy, 2: use.Idle, 3: use.Unknown}, 1, true, indices{0}, ""},
		"over-subscribed: unknown is last":     {states{0: use.Busy, 1: use.Unknown, 2: use.Unknown, 3: use.Failed}, 2, true, indices{0, 1}, ""},
		"a state of one that isn't registered": {states{9: use.Busy}, 1, false, indices{1}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			b := state.Files{Devices: shared()}
			got, err := b.Attach(state.AttachRequest{EID: "7", Count: row.count, OverSubscribe: row.over, Availability: state.Availability{States: row.states}, At: at("10:00:00")})
			require.Equal(t, row.want, got)
			if row.refuse == "" {
				require.NoError(t, err)
			} else {
				require.ErrorContains(t, err, row.refuse)
			}
		})
	}
}

func TestARefusalNamesTheConflicts(t *testing.T) {
	b := state.Files{Devices: gpus(2), Environments: []snapshot.Environment{{EID: "1667", UID: 1001, Username: "alice"}}}
	proctest.Try(b.Attach(state.AttachRequest{EID: "1667", Count: 1, At: at("10:00:00")})).OK(t)
	_, err := b.Attach(state.AttachRequest{EID: "lost", Indices: indices{1}, Memory: snapshot.MustMemory("4g"), At: at("11:00:00")})
	require.NoError(t, err)
	_, err = b.Attach(state.AttachRequest{EID: "7", Indices: indices{0}, At: at("12:00:00")})
	var taken *state.UnavailableError
	require.ErrorAs(t, err, &taken)
	require.False(t, taken.TooFew)
	require.Len(t, taken.Conflicts, 1)
	require.Equal(t, `GPU 0: environment 1667 of alice(1001) has it since 2026-11-20T10:00:00`, taken.Conflicts[0].String())
	_, err = b.Attach(state.AttachRequest{EID: "7", Count: 2, At: at("12:00:00")})
	var many *state.UnavailableError
	require.ErrorAs(t, err, &many)
	require.True(t, many.TooFew)
	require.Len(t, many.Conflicts, 2)
	require.Equal(t, `GPU 1: environment lost has 4g since 2026-11-20T11:00:00`, many.Conflicts[1].String())
}

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
			require.Contains(t, proctest.Try(b.Attach(row.request)).OK(t), snapshot.DeviceIndex(2))
			require.Equal(t, &row.want, b.Devices[2].Attachment(row.request.EID))
			data := proctest.Try(b.Encode(state.Devices)).OK(t)
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
			require.ErrorIs(t, proctest.Try(b.Attach(row.request)).Err, row.is)
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
	proctest.Try(b.Attach(state.AttachRequest{EID: "9", Instances: []state.InstanceRequest{instance(2, "MIG-b")}})).OK(t)
}
