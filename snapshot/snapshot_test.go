package snapshot_test

import (
	"errors"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/seed-3119e985/genv/snapshot"
)

func TestLookUps(t *testing.T) {
	s := snapshot.Snapshot{
		Environments: []snapshot.Environment{{EID: "2020", UID: 1002}},
		Devices: []snapshot.Device{
			{Index: 3, Attachments: []snapshot.Attachment{{EID: "2020"}}},
			{Index: 0, Attachments: []snapshot.Attachment{{EID: "1667"}, {EID: "2020"}}},
			{Index: 1},
		},
	}
	require.Equal(t, snapshot.UID(1002), s.Environment("2020").UID)
	require.Nil(t, s.Environment("1667"), "attached, but not registered")
	require.Nil(t, s.Environment(""))
	require.Equal(t, snapshot.DeviceIndex(3), s.Device(3).Index)
	require.Nil(t, s.Device(2))
	require.NotNil(t, s.Device(0).Attachment("2020"))
	require.Nil(t, s.Device(1).Attachment("2020"))
	require.Equal(t, []snapshot.DeviceIndex{3, 0}, s.AttachedTo("2020"))
	require.Empty(t, s.AttachedTo("9999"))

	s.Environment("2020").OwnerMismatch = true
	require.True(t, s.Environments[0].OwnerMismatch, "the result points into the snapshot")
}

func TestUses(t *testing.T) {
	p := snapshot.Process{Usage: []snapshot.DeviceUsage{{Index: 2, Memory: snapshot.MiB(5)}, {Index: 4}}}
	require.Equal(t, snapshot.MiB(5), p.Uses(2).Memory)
	require.False(t, p.Uses(4).Memory.Known())
	require.Nil(t, p.Uses(0))
}

func TestAHostThatDidNotAnswerIsNotAnEmptyHost(t *testing.T) {
	down := errors.New("down")
	c := snapshot.Cluster{Hosts: []snapshot.Host{
		{Name: "a", Snapshot: &snapshot.Snapshot{}},
		{Name: "b", Err: down},
		{Name: "c"},
		{Name: "d", Snapshot: &snapshot.Snapshot{}, Err: down},
		{Name: "e", Snapshot: &snapshot.Snapshot{}},
	}}
	names := func(hosts []snapshot.Host) (names []snapshot.Hostname) {
		for _, h := range hosts {
			names = append(names, h.Name)
		}
		return names
	}
	require.Equal(t, []snapshot.Hostname{"a", "e"}, names(c.Answered()))
	require.Equal(t, []snapshot.Hostname{"b", "c", "d"}, names(c.Failed()))
}

func TestClaim(t *testing.T) {
	for value, want := range map[string]snapshot.EnvID{
		"1667": "1667", "bogus": "bogus", "": "", "\x1b[31m": "", "\xff": "", "16\n67": "",
	} {
		require.Equal(t, want, snapshot.Claim(value), "%q", value)
	}
}
