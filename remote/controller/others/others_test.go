package others_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-3119e985/genv/remote/agent/controllers"
	"github.com/seed-3119e985/genv/remote/controller/others"
	"github.com/seed-3119e985/genv/snapshot"
)

var noon = time.Date(2026, 11, 20, 12, 0, 0, 0, time.UTC)

func seen(id, policy string) controllers.Seen {
	return controllers.Seen{Controller: controllers.Controller{ID: id, Hostname: "jump-" + id, Account: "root", PID: 4711, Policy: policy}}
}

var self = controllers.Controller{ID: "me", Hostname: "jump-me", Policy: "p1"}

func host(name string, list ...controllers.Seen) others.Host {
	return others.Host{Name: snapshot.Hostname(name), Answered: true, Answer: controllers.Answer{Others: list}}
}

// say are the actions and texts of a cycle, as one text.
func say(t *others.Tracker, at time.Duration, hosts ...others.Host) string {
	var all []string
	for _, n := range t.Learn(&self, hosts, noon.Add(at)) {
		all = append(all, fmt.Sprintf("%s %s: %s", n.Action, n.Host, n.Text))
	}
	return strings.Join(all, "\n")
}

func TestAnotherControllerIsSaidOnce(t *testing.T) {
	for name, row := range map[string]struct {
		policy string
		says   string
	}{
		"another policy":   {"p2", "with another policy"},
		"the same policy":  {"p1", "with the same policy"},
		"a policy unknown": {"", "a policy that is not known"},
	} {
		tracker := new(others.Tracker)
		b := seen("b", row.policy)
		said := say(tracker, 0, host("gpu-1", b), host("gpu-2", b), host("gpu-3"))
		require.True(t, strings.HasPrefix(said, "other-controller gpu-1: Another controller enforces gpu-1, gpu-2"), said)
		require.Contains(t, said, row.says, name)
		require.Contains(t, said, "root on jump-b, process 4711")
		require.Contains(t, said, "top ", "the next step")
		require.Empty(t, say(tracker, time.Second, host("gpu-1", b), host("gpu-2", b), host("gpu-3")))
		b.PID, b.Started = 4712, noon
		require.Empty(t, say(tracker, 2*time.Second, host("gpu-1", b), host("gpu-2", b), host("gpu-3")), "it was restarted")
	}
}

func TestChangesAreSaid(t *testing.T) {
	tracker := new(others.Tracker)
	b := seen("b", "p2")
	say(tracker, 0, host("gpu-1", b), host("gpu-2"))
	require.Contains(t, say(tracker, 1, host("gpu-1", b), host("gpu-2", b)), "other-controller-changed gpu-1: Another controller now enforces gpu-1, gpu-2 with another")
	require.Empty(t, say(tracker, 2, host("gpu-1", b), host("gpu-2")), "one host less")
	b.Policy = "p1"
	require.Contains(t, say(tracker, 3, host("gpu-1", b), host("gpu-2", b)), "with the same policy")
	require.Contains(t, say(tracker, 4, host("gpu-1", b, seen("c", "p1"))), "jump-c", "a third one")
}

func TestTheEndIsSaid(t *testing.T) {
	tracker := new(others.Tracker)
	b := seen("b", "p2")
	say(tracker, 0, host("gpu-1", b), host("gpu-2", b))
	lost := others.Host{Name: "gpu-2"}
	require.Empty(t, say(tracker, time.Minute, host("gpu-1"), lost), "whether gpu-2 still names it is unknown")
	require.Empty(t, say(tracker, 2*time.Minute, host("gpu-1"), lost))
	require.Empty(t, say(tracker, 3*time.Minute, host("gpu-1"), host("gpu-2")), "it may be reconnecting")
	require.Empty(t, say(tracker, 3*time.Minute+5*time.Second, host("gpu-1", b), host("gpu-2")), "as it was")
	require.Empty(t, say(tracker, 4*time.Minute, host("gpu-1"), host("gpu-2")))
	require.Equal(t, "other-controller-ended gpu-1: The other controller no longer enforces gpu-1, gpu-2: root on jump-b, process 4711",
		say(tracker, 4*time.Minute+10*time.Second, host("gpu-1"), host("gpu-2")))
	require.Empty(t, say(tracker, 5*time.Minute, host("gpu-1"), host("gpu-2")))
	require.Contains(t, say(tracker, 6*time.Minute, host("gpu-1", b)), "other-controller gpu-1")
}

// What must not be said: oneself under two names of a machine, or after a restart.
func TestOneselfIsNotAnother(t *testing.T) {
	me := controllers.Seen{Controller: self}
	me.PID, me.Policy = 1, "p9"
	require.Empty(t, say(new(others.Tracker), 0, host("gpu-1", me), host("gpu-2", me)))
	copied := me
	copied.Hostname = "another machine with a copy of the folder"
	require.NotEmpty(t, say(new(others.Tracker), 0, host("gpu-1", copied)))
}

func TestAHostThatCantSay(t *testing.T) {
	tracker := new(others.Tracker)
	broken := others.Host{Name: "gpu-1", Answered: true, Answer: controllers.Answer{Unknown: "no space\x1b[2J left"}}
	require.Equal(t, `other-controllers-unknown gpu-1: gpu-1 can't say which other controllers enforce it: no space\x1b[2J left`, say(tracker, 0, broken))
	require.Empty(t, say(tracker, 1, broken))
	require.Empty(t, say(tracker, 2, host("gpu-1")))
	require.NotEmpty(t, say(tracker, 3, broken))
}

// A host that makes controllers up says a few lines an hour; others are still heard.
func TestAHostThatMakesControllersUp(t *testing.T) {
	tracker := new(others.Tracker)
	lines := 0
	for i := range 2000 {
		var list []controllers.Seen
		for j := range controllers.MaxOthers {
			s := seen(fmt.Sprintf("%d-%d", i, j), "p")
			s.Account, s.Hostname = "root\nrun rm -rf /\x1b[2J", strings.Repeat("x", 200)
			list = append(list, s)
		}
		for _, line := range strings.Split(say(tracker, time.Duration(i)*time.Second, host("evil", list...), host("good")), "\n") {
			if line != "" {
				lines++
				require.Less(t, len(line), 500)
				require.NotContains(t, line, "\x1b")
			}
		}
	}
	require.LessOrEqual(t, lines, 16, "eight that appeared, and that they ended")
	require.Contains(t, say(tracker, 2001*time.Second, host("evil", seen("x", "p")), host("good", seen("b", "p2"))), "Another controller enforces good")
}

// A host that names another's controller with a policy of its own, in turns, causes few lines.
func TestAHostThatContradicts(t *testing.T) {
	tracker := new(others.Tracker)
	var hosts []others.Host
	for i := range 100 {
		hosts = append(hosts, host(fmt.Sprintf("gpu-%d", i), seen("b", "p1")))
	}
	lines := 0
	for i := range 1000 {
		policy := fmt.Sprint("p", i%2+1)
		if say(tracker, time.Duration(i)*time.Second, append(hosts, host("evil", seen("b", policy)))...) != "" {
			lines++
		}
	}
	require.LessOrEqual(t, lines, 8)
}

func TestManyHostsAreFolded(t *testing.T) {
	var hosts []others.Host
	for i := range 60 {
		hosts = append(hosts, host(fmt.Sprintf("gpu-%02d", i), seen("b", "p2")))
	}
	require.Contains(t, say(new(others.Tracker), 0, hosts...), "enforces gpu-00, gpu-01, gpu-02, gpu-03 and 56 more hosts with another policy")
	require.Contains(t, say(new(others.Tracker), 0, host("", seen("b", "p2"))), "enforces this machine with")
}
