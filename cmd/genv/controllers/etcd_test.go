package controllers

import (
	"bytes"
	"os/exec"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-3119e985/genv/cmd/genv/leadership"
	"github.com/seed-3119e985/genv/cmd/genv/render"
	"github.com/seed-3119e985/genv/remote/agent/fence"
	"github.com/seed-3119e985/genv/remote/election"
	"github.com/seed-3119e985/genv/remote/election/etcd"
	"github.com/seed-3119e985/genv/remote/testfleet/etcdcluster"
)

func TestEtcd(t *testing.T) {
	for name, row := range map[string]struct {
		etcd     *Etcd
		problems []string
	}{
		"not asked":            {nil, nil},
		"in order":             {&Etcd{Members: 3}, nil},
		"a member is lost":     {&Etcd{Members: 3, Silent: []string{"b:2379: refused"}}, []string{"1 of 3 members of etcd don't answer: b:2379: refused"}},
		"two members":          {&Etcd{Members: 5, Silent: []string{"b:2379: refused", "c:2379: refused"}}, []string{"2 of 5 members of etcd don't answer: b:2379: refused; c:2379: refused"}},
		"its space is used up": {&Etcd{Members: 3, OutOfSpace: true}, []string{"etcd's space is used up: no other controller can take over, and the memory of the leader isn't kept"}},
	} {
		d := &Document{Time: noon, Etcd: row.etcd, Election: electionOf("/k", leaderOf("1"), 9, cluster, []election.Registration{registered("1", false), registered("2", false)}, noon)}
		d.judge()
		require.Equal(t, row.problems, texts(d), name)
	}
}

// Without etcd the table of hosts is shown, and which of them is wrong isn't guessed.
func TestHostsWithoutEtcd(t *testing.T) {
	for refused, next := range map[bool]string{false: "look at `etcdctl endpoint health`", true: "correct --leader"} {
		d := &Document{Time: noon, Etcd: &Etcd{Members: 3, Silent: []string{"a", "b"}, Error: "no majority", refused: refused, health: "etcdctl endpoint health"}, Hosts: []Host{
			said("a", fence.ElectionSource(cluster, "/k"), 9, false), said("b", fence.ElectionSource(cluster, "/k"), 7, false),
			said("c", fence.FolderSource("x"), 7, false), said("d", fence.FolderSource("x"), 7, true),
		}}
		d.judge()
		require.Equal(t, []string{"etcd doesn't say which controller leads: no majority"}, texts(d))
		require.Contains(t, d.Problems[0].Next, next)
		var b bytes.Buffer
		require.NoError(t, d.write(&b, render.Output{Format: "tui"}))
		require.Regexp(t, `(?s) may act\n.* may act\n.* acts\n.* released\n`, b.String())
	}
}

// Against a real etcd: the commands that are shown end the alarm, and a member that was killed is seen.
func TestFreeSpace(t *testing.T) {
	t.Parallel()
	if _, err := exec.LookPath("etcdctl"); err != nil {
		t.Skip("there is no etcdctl")
	}
	e := etcdcluster.Start(t, 3, "--quota-backend-bytes", "4194304")
	config := leadership.Config{Key: "/k", Etcd: etcd.Config{Endpoints: e.Endpoints()}}
	client := etcd.New(config.Etcd)
	defer client.Close()
	for range 20 {
		_ = client.Put(t.Context(), "/full", make([]byte, 1<<20), 0)
	}
	ask := func() *Document {
		d := &Document{}
		require.NoError(t, d.askEtcd(t.Context(), &config))
		return d
	}
	d := ask()
	require.True(t, d.Etcd.OutOfSpace)
	out, err := exec.CommandContext(t.Context(), "sh", "-c", d.Etcd.freeSpace()).CombinedOutput()
	require.NoError(t, err, "%s", out)
	require.Eventually(t, func() bool { return !ask().Etcd.OutOfSpace }, 10*time.Second, 100*time.Millisecond, "%s", out)
	require.NoError(t, client.Put(t.Context(), "/full", make([]byte, 1<<20), 0))

	e.Kill(1)
	require.Eventually(t, func() bool { // the others may elect a leader first
		return d.askEtcd(t.Context(), &config) == nil && len(d.Etcd.Silent) == 1
	}, time.Minute, 100*time.Millisecond)
	require.Contains(t, d.Etcd.Silent[0], "connection refused")
}

// --leader has nothing act here, so its help isn't that of `genv remote enforce`.
func TestHelpOfLeader(t *testing.T) {
	for i, flag := range leadership.Flags() {
		require.Equal(t, flag.Names(), leaderFlags()[i].Names())
	}
	require.NotContains(t, leaderFlags()[0].String(), "act only")
}
