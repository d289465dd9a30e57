package snapshot_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/seed-3119e985/genv/snapshot"
)

func uidOf(n snapshot.UID) *snapshot.UID { return &n }

func TestWhoseAProcessInAContainerIs(t *testing.T) {
	proved := func(p snapshot.ContainerProof) *snapshot.ContainerInfo {
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
		require.Equal(t, row.uid, row.process.CountedUID(), name)
		require.Equal(t, row.user, row.process.CountedUser(), name)
	}
}

func TestContainerText(t *testing.T) {
	id := strings.Repeat("4c01db0b339c0a1f", 4)
	for want, p := range map[string]snapshot.Process{
		"":                       {},
		"container 4c01db0b339c": {Container: id},
		"container unnamed":      {Container: snapshot.UnnamedContainer},
		"container web (pytorch:24.10), started by bob":                                    {Container: id, ContainerInfo: &snapshot.ContainerInfo{Name: "web", Image: "pytorch:24.10", UID: uidOf(1002), User: "bob"}},
		"container web (nvcr.io/nvidia/pytorch:24.10-py3), started by uid 1002":            {Container: id, ContainerInfo: &snapshot.ContainerInfo{Name: "web", Image: "nvcr.io/nvidia/pytorch:24.10-py3", UID: uidOf(1002)}},
		"container web (lab/train:1), started by an unknown user":                          {Container: id, ContainerInfo: &snapshot.ContainerInfo{Name: "web", Image: "lab/train:1"}},
		"container 4c01db0b339c, started by bob":                                           {Container: id, ContainerInfo: &snapshot.ContainerInfo{UID: uidOf(1002), User: "bob"}},
		"container 4c01db0b339c (its runtime does not answer), started by an unknown user": {Container: id, ContainerInfo: &snapshot.ContainerInfo{Unknown: true}},
		`container "web, started by alice" ("a) (b"), started by "b ob"`:                   {Container: id, ContainerInfo: &snapshot.ContainerInfo{Name: "web, started by alice", Image: "a) (b", UID: uidOf(1002), User: "b ob"}},
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
		data, err := snapshot.EncodeNative(s)
		require.NoError(t, err)
		_, err = snapshot.DecodeNative(data)
		require.ErrorIs(t, err, snapshot.ErrInvalid, name)
	}
}
