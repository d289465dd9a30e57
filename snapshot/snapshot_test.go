package snapshot_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/seed-3119e985/genv/snapshot"
	"github.com/seed-3119e985/genv/snapshot/proc/proctest"
)

func TestMemoryOfAProfile(t *testing.T) {
	for profile, gib := range map[string]int64{
		"1g.5gb": 5, "1g.10gb": 10, "1g.10gb+me": 10, "7g.80gb": 80, "1c.3g.40gb": 40, "1g.24gb+me.all": 24,
	} {
		require.Equal(t, snapshot.MiB(gib<<10), snapshot.Instance{Profile: profile}.Memory(), profile)
	}
	for _, profile := range []string{"", "1g", "gb", "1g.gb", "1g.0gb", "1g.-5gb", "1g.5tb", "1g.99999999gb"} {
		require.False(t, snapshot.Instance{Profile: profile}.Memory().Known(), profile)
	}
}

func TestCheckInstance(t *testing.T) {
	for uuid, valid := range map[snapshot.GPUUUID]bool{
		"MIG-a0000000-0001-5fef-9c87-000000000001": true, "MIG-GPU-5a5c3f2e-0003/1/0": true,
		"": false, "GPU-1": false, "mig-1": false, "MIG-1,0": false, "MIG-1 2": false, "MIG-$(id)": false, "MIG-\x1b": false,
	} {
		require.Equal(t, valid, snapshot.CheckInstance(uuid) == nil, uuid)
	}
}

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
	require.Equal(t, []snapshot.DeviceIndex{3, 0}, snapshot.AttachedTo(s.Devices, "2020"))
	require.Empty(t, snapshot.AttachedTo(s.Devices, "9999"))

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
	require.Equal(t, []snapshot.Hostname{"b", "d"}, names(c.Failed()))
}

func TestClaim(t *testing.T) {
	for value, want := range map[string]snapshot.EnvID{
		"1667": "1667", "bogus": "bogus", "": "", "\x1b[31m": "odd-83a738788fd1a69a", strings.Repeat("x", 256): snapshot.EnvID(strings.Repeat("x", 256)), strings.Repeat("x", 257): "odd-15eb95a462ee20bd",
	} {
		require.Equal(t, want, snapshot.Claim(value), "%q", value)
	}
}

func uidOf(n snapshot.UID) *snapshot.UID { return &n }

func TestWhoseAProcessInAContainerIs(t *testing.T) {
	proved := func(p string) *snapshot.ContainerInfo {
		return &snapshot.ContainerInfo{UID: uidOf(1001), User: "alice", Proof: p}
	}
	for name, row := range map[string]struct {
		process snapshot.Process
		uid     *snapshot.UID
		user    snapshot.Username
	}{
		"in no container":              {snapshot.Process{UID: uidOf(1002), Username: "bob"}, uidOf(1002), "bob"},
		"of a host without uids":       {snapshot.Process{Container: "web", Username: "bob"}, nil, "bob"},
		"of a host that looks no more": {snapshot.Process{UID: uidOf(1002), Username: "bob", Container: "web"}, uidOf(1002), "bob"},
		"as root, recorded":            {snapshot.Process{UID: uidOf(0), Username: "root", Container: "web", ContainerInfo: proved(snapshot.ProofRecord)}, uidOf(1001), "alice"},
		"as another user, recorded":    {snapshot.Process{UID: uidOf(1002), Username: "bob", Container: "web", ContainerInfo: proved(snapshot.ProofRecord)}, uidOf(1001), "alice"},
		"rootless":                     {snapshot.Process{UID: uidOf(1001), Username: "alice", Container: "web", ContainerInfo: proved(snapshot.ProofRootless)}, uidOf(1001), "alice"},
		"as root, not proved":          {snapshot.Process{UID: uidOf(0), Username: "root", Container: "web", ContainerInfo: &snapshot.ContainerInfo{}}, uidOf(0), ""},
		"as another user, not proved":  {snapshot.Process{UID: uidOf(1002), Username: "bob", Container: "web", ContainerInfo: &snapshot.ContainerInfo{}}, uidOf(0), ""},
	} {
		user, uid := row.process.CountsFor()
		require.Equal(t, row.uid, uid, name)
		require.Equal(t, row.user, user, name)
	}
}

func TestContainerText(t *testing.T) {
	id := strings.Repeat("4c01db0b339c0a1f", 4)
	for want, p := range map[string]snapshot.Process{
		"":                       {},
		"container 4c01db0b339c": {Container: id},
		"container unnamed":      {Container: snapshot.UnnamedContainer},
		"container web (pytorch:24.10), started by bob":                                     {Container: id, ContainerInfo: &snapshot.ContainerInfo{Name: "web", Image: "pytorch:24.10", UID: uidOf(1002), User: "bob"}},
		"container web (nvcr.io/nvidia/pytorch:24.10-py3), started by uid 1002":             {Container: id, ContainerInfo: &snapshot.ContainerInfo{Name: "web", Image: "nvcr.io/nvidia/pytorch:24.10-py3", UID: uidOf(1002)}},
		"container web (lab/train:1), started by an unknown user":                           {Container: id, ContainerInfo: &snapshot.ContainerInfo{Name: "web", Image: "lab/train:1"}},
		"container 4c01db0b339c, started by bob":                                            {Container: id, ContainerInfo: &snapshot.ContainerInfo{UID: uidOf(1002), User: "bob"}},
		"container 4c01db0b339c (not described by its runtime), started by an unknown user": {Container: id, ContainerInfo: &snapshot.ContainerInfo{Unknown: true}},
		`container "web, started by alice" ("a) (b"), started by "b ob"`:                    {Container: id, ContainerInfo: &snapshot.ContainerInfo{Name: "web, started by alice", Image: "a) (b", UID: uidOf(1002), User: "b ob"}},
	} {
		require.Equal(t, want, p.ContainerText())
	}
}

func TestBoundedLabels(t *testing.T) {
	few := map[string]string{"team": "vision", "empty": ""}
	bounded, cut := snapshot.BoundedLabels(few)
	require.Equal(t, few, bounded)
	require.False(t, cut)
	bounded, cut = snapshot.BoundedLabels(nil)
	require.Empty(t, bounded)
	require.False(t, cut)

	many := map[string]string{"a control\ncharacter": "", "a-long-value": strings.Repeat("x", 257)}
	for i := range 40 {
		many[fmt.Sprintf("key-%02d", i)] = "value"
	}
	bounded, cut = snapshot.BoundedLabels(many)
	require.Len(t, bounded, snapshot.MaxContainerLabels)
	require.Contains(t, bounded, "key-00")
	require.NotContains(t, bounded, "key-39")
	require.True(t, cut)
	bounded, cut = snapshot.BoundedLabels(map[string]string{"a-long-value": strings.Repeat("x", 257)})
	require.Empty(t, bounded)
	require.True(t, cut)
}

// TestContainersThatAHostMakesUp: a host is not believed what no host of ours reports.
func TestContainersThatAHostMakesUp(t *testing.T) {
	for name, c := range map[string]snapshot.ContainerInfo{
		"a name with a newline": {Name: "a\nb"},
		"a long image":          {Image: strings.Repeat("x", 5000)},
		"a user without proof":  {UID: uidOf(1001)},
		"a proof without user":  {Proof: snapshot.ProofRecord},
		"a label with a bell":   {Labels: map[string]string{"a": "\a"}},
		"a long key":            {Labels: map[string]string{strings.Repeat("x", 300): ""}},
		"an environment's id":   {EID: snapshot.EnvID(strings.Repeat("x", 300))},
	} {
		s := everything(t)
		s.Processes[0].ContainerInfo = &c
		data := proctest.Try(snapshot.EncodeNative(s)).OK(t)
		got := proctest.Try(snapshot.DecodeNative(data)).OK(t, name)
		require.Equal(t, &snapshot.ContainerInfo{Unknown: true}, got.Processes[0].ContainerInfo, name)
	}
}
