package audit_test

import (
	"fmt"
	"strings"
	"testing"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/stretchr/testify/require"

	"github.com/seed-3119e985/genv/enforce/audit"
	"github.com/seed-3119e985/genv/enforce/order"
	"github.com/seed-3119e985/genv/snapshot"
)

var noon = time.Date(2026, 11, 20, 12, 0, 0, 0, time.UTC)

// TestIDs pins them: the ids of old records, mails and hosts must stay what they are.
func TestIDs(t *testing.T) {
	device := new(snapshot.DeviceIndex(0))
	require.Equal(t, "695bbea2", audit.DecisionID("run/7/gpu-01", 4242, "5", nil))
	require.Equal(t, audit.DecisionID("run/7/gpu-01", 4242, "5", nil), audit.DecisionID("run/7/gpu-01", 4242, "", nil), "a process by its PID")
	require.Equal(t, "084cc5d2", audit.DecisionID("run/7/gpu-01", 0, "5", device))
	require.Equal(t, "3a5b27d3", audit.WarningID("idle/gpu-01/5/0/2026-11-20T08:00:00"))
	require.Empty(t, audit.DecisionID("", 4242, "", nil), "an order without an id")
	seen := map[string]bool{}
	for _, id := range []string{
		audit.DecisionID("a", 1, "", nil), audit.DecisionID("a", 2, "", nil), audit.DecisionID("b", 1, "", nil), audit.DecisionID("a", 0, "", device),
		audit.DecisionID("a", 0, "1", device), audit.DecisionID("a", 0, "1", new(snapshot.DeviceIndex(1))), audit.WarningID("a"),
	} {
		require.True(t, audit.IsDecisionID(id), id)
		require.False(t, seen[id], id)
		seen[id] = true
	}
	for _, text := range []string{"", "5b1c09e", "5b1c09e2f", "5b1c09eg", "-b1c09e2"} {
		require.False(t, audit.IsDecisionID(text), text)
	}
}

// judged is a host on which alice (1001) is in environment 5 and bob (1002) in 6, both
// attached to device 0, with their processes.
func judged() *snapshot.Snapshot {
	created, _ := snapshot.ParseDate("20/11/2026 08:00:00")
	process := func(pid snapshot.PID, uid snapshot.UID, user snapshot.Username, eid snapshot.EnvID) snapshot.Process {
		return snapshot.Process{
			PID: pid, Start: 100, UID: &uid, Username: user, EID: eid, Command: "python " + string(user) + ".py",
			Usage: []snapshot.DeviceUsage{{Index: 0, Memory: snapshot.MiB(1024)}, {Index: 1}},
		}
	}
	return &snapshot.Snapshot{
		Environments: []snapshot.Environment{{EID: "5", UID: 1001, Username: "alice", Creation: created}, {EID: "6", UID: 1002, Username: "bob", Creation: created}},
		Devices: []snapshot.Device{{
			Index: 0, Name: "H100", TotalMemory: snapshot.MiB(80_000), UsedMemory: snapshot.MiB(2048), Utilization: new(7),
			Attachments: []snapshot.Attachment{{EID: "5", Time: created}, {EID: "6", Time: created}},
		}},
		Processes: []snapshot.Process{process(10, 1001, "alice", "5"), process(11, 1002, "bob", "6"), process(12, 1001, "alice", "6")},
	}
}

func explain(s *snapshot.Snapshot, o order.Order) order.Order {
	audit.Explain(&o, "gpu-01", s, noon)
	return o
}

func TestExplain(t *testing.T) {
	s := judged()
	o := explain(s, order.Order{
		Terminate: []order.Termination{{Process: s.Processes[0]}, {Process: s.Processes[2]}},
		Detach:    []order.Detachment{{Device: 0, Environment: s.Environments[0]}},
	})
	const (
		title  = "snapshot of gpu-01, 2026-11-20 12:00:00 UTC"
		device = "GPU 0 H100: 2.0 GiB of 78.1 GiB used, computing 7%"
		env    = "environment 5 of user alice (uid 1001), created 2026-11-20T08:00:00, attached to GPU 0 since 2026-11-20T08:00:00"
		first  = `process 10, started 100 ticks after boot, user alice (uid 1001), command "python alice.py", claims environment 5, GPU 0: 1.0 GiB, GPU 1: unknown memory`
	)
	require.Equal(t, []string{title, first, device, env}, o.Terminate[0].Judged)
	require.Equal(t, []string{title, strings.Replace(strings.Replace(first, "10", "12", 1), "environment 5", "environment 6", 1), device},
		o.Terminate[1].Judged, "the environment that it claims is bob's")
	require.Equal(t, []string{title, device, env, first, strings.Replace(strings.Replace(first, "10", "12", 1), "environment 5", "environment 6", 1)},
		o.Detach[0].Judged, "bob's process isn't hers to see")
	require.Nil(t, explain(nil, order.Order{Terminate: []order.Termination{{Process: s.Processes[0]}}}).Terminate[0].Judged)
}

// What is not known is not shown as something.
func TestExplainTheUnknown(t *testing.T) {
	o := explain(&snapshot.Snapshot{}, order.Order{
		Terminate: []order.Termination{{Process: snapshot.Process{PID: 7, EnvUnknown: true, Usage: []snapshot.DeviceUsage{{Index: 3}}}}},
		Detach:    []order.Detachment{{Device: 3, Environment: snapshot.Environment{EID: "9", UID: 1, OwnerMismatch: true}}},
	})
	require.Equal(t, "process 7, user unknown, its environment can't be read, GPU 3: unknown memory", o.Terminate[0].Judged[1])
	require.Len(t, o.Terminate[0].Judged, 2)
	require.Equal(t, "environment 9 of uid 1, attached to no GPU", o.Detach[0].Judged[1])
}

// Whatever a host or its users make up, an item has few short lines that are safe to show.
func TestExplainHostileNames(t *testing.T) {
	const evil = "x\x1b[2J\u202e\n<script>\"\r\x00"
	long := strings.Repeat("日"+evil, 500)
	env := snapshot.Environment{EID: snapshot.EnvID(evil), UID: 1, Username: snapshot.Username(long)}
	s := &snapshot.Snapshot{Environments: []snapshot.Environment{env}}
	for i := range 1000 {
		index := snapshot.DeviceIndex(i)
		s.Devices = append(s.Devices, snapshot.Device{Index: index, Name: long, UUID: snapshot.GPUUUID(evil), Attachments: []snapshot.Attachment{{EID: env.EID}}})
	}
	var o order.Order
	for i := range 2000 {
		p := snapshot.Process{PID: snapshot.PID(i + 1), UID: new(snapshot.UID(1)), Username: env.Username, EID: env.EID, Command: long, Container: long, Usage: []snapshot.DeviceUsage{{Index: 0}}}
		for j := range 1000 {
			p.Usage = append(p.Usage, snapshot.DeviceUsage{Index: snapshot.DeviceIndex(j)})
		}
		s.Processes = append(s.Processes, p)
		o.Terminate = append(o.Terminate, order.Termination{Process: p})
	}
	o.Detach = []order.Detachment{{Environment: env}}
	o = explain(s, o)
	total := 0
	for _, item := range o.Terminate {
		total += len(fmt.Sprint(item.Judged))
	}
	require.Less(t, total, 4<<20, "an order stays far below the size that a host reads")
	require.Contains(t, o.Detach[0].Judged, "1996 more processes of this user on the GPU")
	for _, lines := range [][]string{o.Terminate[0].Judged, o.Detach[0].Judged, (&audit.HistoryEntry{Text: long, User: snapshot.Username(evil), Judged: []string{long}}).Lines()} {
		require.LessOrEqual(t, len(lines), audit.MaxJudgedLines)
		for _, line := range lines {
			require.False(t, strings.ContainsFunc(line, func(r rune) bool { return !unicode.IsPrint(r) }), "%q", line)
		}
	}
	for _, line := range o.Terminate[0].Judged {
		require.LessOrEqual(t, len(line), audit.MaxJudgedBytes)
		require.LessOrEqual(t, utf8.RuneCountInString(line), 320)
	}
}

func TestLines(t *testing.T) {
	at := time.Date(2026, 11, 20, 12, 0, 0, 0, time.Local)
	zone := at.Format("MST")
	require.Equal(t, []string{
		"Decision   5b1c09e2", "Time       2026-11-20 12:00:00 " + zone, "Host       gpu-01", "User       alice", "What       Terminating process 10",
		"Outcome    refused: it is a daemon", "Because    one", "           two", "Notified   2026-11-20 11:00:00 " + zone, "By         root", "Judged     a", "           b",
	}, (&audit.HistoryEntry{
		ID: "5b1c09e2", Time: at, Host: "gpu-01", User: "alice", Text: "Terminating process 10", Status: order.StatusRefused, Reason: "it is a daemon",
		Why: []string{"one", "two"}, Notified: at.Add(-time.Hour), By: "root", Judged: []string{"a", "b"},
	}).Lines())
	require.Equal(t, []string{"Decision   5b1c09e2", "Outcome    under way"}, (&audit.HistoryEntry{ID: "5b1c09e2"}).Lines())
}
