package controller_test

import (
	"context"
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-3119e985/genv/enforce"
	"github.com/seed-3119e985/genv/enforce/audit"
	"github.com/seed-3119e985/genv/enforce/order"
	"github.com/seed-3119e985/genv/remote"
	"github.com/seed-3119e985/genv/remote/agent"
	"github.com/seed-3119e985/genv/remote/controller"
	"github.com/seed-3119e985/genv/snapshot"
)

// attachments are hosts with one GPU, to which an environment of the host's user is attached.
type attachments struct {
	plain
	users    map[string]snapshot.Username
	detached map[string]bool
	fails    map[string]error // the messages to a host
	shown    int              // on how many terminals messages are shown
	mu       sync.Mutex       // for messages, which are sent to several hosts at a time
	messages map[string][]agent.Message
}

func attached(users map[string]snapshot.Username) *attachments {
	return &attachments{users: users, detached: map[string]bool{}, fails: map[string]error{}, messages: map[string][]agent.Message{}}
}

func (a *attachments) Snapshot(_ context.Context, h remote.Host) (*snapshot.Snapshot, error) {
	uid := snapshot.UID(1001)
	if a.users[h.Name] == "bob" {
		uid = 1002
	}
	s := &snapshot.Snapshot{
		BootID: h.Name, Environments: []snapshot.Environment{{EID: "7", UID: uid, Username: a.users[h.Name]}},
		Devices: []snapshot.Device{{Index: 0, TotalMemory: snapshot.MiB(1000), Attachments: []snapshot.Attachment{{EID: "7"}}}},
	}
	if a.detached[h.Name] {
		s.Devices[0].Attachments = nil
	}
	return s, nil
}

func (a *attachments) Execute(_ context.Context, h remote.Host, o order.Order) (agent.Execution, error) {
	a.detached[h.Name] = a.detached[h.Name] || len(o.Detach) > 0
	return carriedOut(o), nil
}

func (a *attachments) Notify(_ context.Context, h remote.Host, messages []agent.Message) ([]agent.Receipt, error) {
	if err := a.fails[h.Name]; err != nil {
		return nil, err
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	a.messages[h.Name] = append(a.messages[h.Name], messages...)
	return slices.Repeat([]agent.Receipt{{Terminals: a.shown}}, len(messages)), nil
}

// controller is one that mails, too.
func (a *attachments) controller(log controller.Recorder, m *mails) *controller.Controller {
	c := mailing(newFakeFleet(nil), log, m)
	c.Survey = controller.Survey{Link: a, Fanout: 1}
	for _, name := range []string{"a", "b", "c"} {
		if a.users[name] != "" {
			c.Hosts = append(c.Hosts, remote.Host{Name: name})
		}
	}
	return c
}

// deviceCap is a policy that caps how many devices a user may have.
type deviceCap struct {
	constant
	most int
	warn enforce.Warn
}

func (p deviceCap) Settings(enforce.Query) *enforce.Settings {
	return &enforce.Settings{MaxDevices: &p.most, Warn: p.warn}
}

func (p deviceCap) Account(user snapshot.Username) snapshot.Username {
	if user == "LAB\\alice" {
		return "alice"
	}
	return user
}

func (deviceCap) Fleet() enforce.Fleet { return enforce.Fleet{NotifyUsers: true} }

// Who exceeds a cap of all hosts is told on each of them what will happen, and where.
func TestNotificationsOfACapOnEachHost(t *testing.T) {
	const over = "User alice has 2 GPUs on 2 hosts, and may have 1.\n"
	const decided = "\nThis is by the policy of your site. Questions: your administrator"
	const advice = "\nGive back GPUs that you need less, such as these: genv detach --index 0 in the shell of environment 7 on a." + decided
	const after = "\nBefore you take more GPUs, end jobs that you need less; in the shell of an environment genv detach --index N gives a GPU back." + decided
	const choice = "Unless this changes soon, what is too much will be taken back, idle GPUs first (as things are now, "
	for name, user := range map[string]snapshot.Username{"the same name": "alice", "another name of the account": "LAB\\alice"} {
		t.Run(name, func(t *testing.T) {
			p := attached(map[string]snapshot.Username{"a": "alice", "b": user, "c": "bob"})
			path := filepath.Join(t.TempDir(), "audit.jsonl")
			var sent mails
			c := p.controller(&audit.Log{Path: path}, &sent)
			policy := deviceCap{most: 1, warn: enforce.Warn{Cycles: 1}}
			round := cycleOf(t.Context(), c, policy)
			require.Equal(t, map[string][]agent.Message{
				"a": {{UID: 1001, Text: over + choice + "GPU 0 will be detached; what runs there then ends, too)." + advice, IDs: []string{"max-devices-per-user/alice"}}},
				"b": {{UID: 1001, Text: over + choice + "GPU 0 will be detached on a; what runs there then ends, too)." + advice, IDs: []string{"max-devices-per-user/alice"}}},
			}, p.messages, "bob is told nothing")
			require.Len(t, round.Notified, 1, "one warning")
			require.Equal(t, "a", string(round.Notified[0].Host))
			round = cycleOf(t.Context(), c, policy)
			require.Len(t, round.Notified, 1)
			require.Equal(t, over+"GPU 0 is being detached."+after, p.messages["a"][1].Text)
			require.Equal(t, over+"GPU 0 is being detached on a."+after, p.messages["b"][1].Text)
			cycleOf(t.Context(), c, policy)
			require.Len(t, p.messages["b"], 2)
			require.Len(t, sent.list, 2, "the warning, and that it is done")
			require.Equal(t, []string{"a", "a"}, recipients(t, path))
		})
	}
}

// recipients are the hosts on which the record says that users were notified.
func recipients(t *testing.T, path string) (hosts []string) {
	for _, r := range recordsOf(t, path, audit.KindNotified) {
		hosts = append(hosts, string(r.Host))
	}
	return hosts
}

func TestNoNotificationElsewhere(t *testing.T) {
	two := map[string]snapshot.Username{"a": "alice", "b": "alice"}
	for name, tt := range map[string]struct {
		users map[string]snapshot.Username
		most  int
		set   func(*controller.Controller)
		want  int // how many messages on each host
	}{
		"told":                         {users: two, most: 1, want: 1},
		"a dry run":                    {users: two, most: 1, set: func(c *controller.Controller) { c.DryRun = true }},
		"no terminals":                 {users: two, most: 1, set: func(c *controller.Controller) { c.Companions = c.Companions[1:] }},
		"no more than the cap":         {users: two, most: 2},
		"something ends on each":       {users: two, most: 0, want: 1},
		"on one host":                  {users: map[string]snapshot.Username{"a": "alice", "b": "bob"}, most: 0, want: 1},
		"an order that isn't recorded": {users: two, most: 1, set: func(c *controller.Controller) { c.Audit = &full{} }},
	} {
		t.Run(name, func(t *testing.T) {
			p := attached(tt.users)
			var sent mails
			c := p.controller(nil, &sent)
			if tt.set != nil {
				tt.set(c)
			}
			cycleOf(t.Context(), c, deviceCap{most: tt.most, warn: enforce.Warn{Cycles: 9}})
			require.Len(t, p.messages["a"], tt.want)
			require.Len(t, p.messages["b"], tt.want)
		})
	}
}

// A warning is repeated where it failed, and not because a host failed on which nothing ends.
func TestAFailureElsewhereRepeatsNoWarning(t *testing.T) {
	lost := remote.Errorf(remote.Timeout, "no answer in time")
	for name, tt := range map[string]struct {
		fails string
		want  int // warnings after three cycles
	}{
		"on no host":                  {"", 1},
		"on the host where it counts": {"b", 1},
		"on the host where it ends":   {"a", 2},
	} {
		t.Run(name, func(t *testing.T) {
			p := attached(map[string]snapshot.Username{"a": "alice", "b": "alice"})
			var sent mails
			c := p.controller(nil, &sent)
			p.fails[tt.fails] = lost
			warned := 0
			for range 3 {
				warned += len(cycleOf(t.Context(), c, deviceCap{most: 1, warn: enforce.Warn{Cycles: 9}}).Notified)
				p.fails = map[string]error{}
			}
			require.Equal(t, tt.want, warned)
		})
	}
}

// What is announced elsewhere counts there as one of the messages of the hour, once it was shown.
func TestMessagesElsewhereAreLimited(t *testing.T) {
	for _, tt := range []struct{ shown, want int }{{1, 20}, {0, 30}} {
		p := attached(map[string]snapshot.Username{"a": "alice", "b": "alice"})
		p.shown = tt.shown
		path := filepath.Join(t.TempDir(), "audit.jsonl")
		var sent mails
		c := p.controller(&audit.Log{Path: path}, &sent)
		c.Companions = c.Companions[:1]
		now := time.Date(2026, 11, 20, 12, 0, 0, 0, time.UTC)
		c.Now = func() time.Time { return now }
		for number := range 60 { // over the cap in each second one
			cycleOf(t.Context(), c, deviceCap{most: 1 + number%2, warn: enforce.Warn{Cycles: 8}})
			now = now.Add(time.Second)
		}
		for _, host := range []string{"a", "b"} {
			shown := slices.DeleteFunc(slices.Clone(p.messages[host]), func(m agent.Message) bool { return m.Over })
			require.Len(t, shown, tt.want, host)
		}
		require.NotContains(t, recipients(t, path), "b")
	}
}
