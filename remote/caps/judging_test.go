package caps

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-3119e985/genv/enforce/holdings"
	"github.com/seed-3119e985/genv/snapshot"
)

// devicesOf makes holdings of alice: HOST:AGE is device 0 of a host, attached AGE minutes ago; after AGE, b
// is busy.
func devicesOf(t *testing.T, words string) *holdings.Shard {
	s := &holdings.Shard{}
	alice := holdings.User{Name: "alice", Due: holdings.Caps(0).With(holdings.Devices)}
	for word := range strings.FieldsSeq(words) {
		var age int
		host, rest, _ := strings.Cut(word, ":")
		_, err := fmt.Sscan(strings.TrimSuffix(rest, "b"), &age)
		require.NoError(t, err)
		s.Hosts = append(s.Hosts, holdings.Host{Name: snapshot.Hostname(host)})
		alice.Hosts++
		at := snapshot.DateOf(time.Date(2026, 1, 1, 12, -age, 0, 0, time.UTC))
		d := &holdings.Device{Host: len(s.Hosts) - 1, Newest: at, Oldest: at, Envs: []holdings.Attached{{EID: "1"}}}
		if strings.HasSuffix(rest, "b") {
			d.Processes = []holdings.Use{{Process: len(s.Processes), Attached: true}}
			s.Processes = append(s.Processes, holdings.Process{Host: d.Host, PID: 1})
		}
		alice.Devices = append(alice.Devices, d)
	}
	if alice.Hosts > 0 {
		s.Users = []holdings.User{alice}
	}
	return s
}

func rulesOf(devices int) holdings.Rules {
	return holdings.Rules{Limits: func(snapshot.Username) holdings.Limits { return holdings.Limits{Devices: &devices} }}
}

// published is what the shards publish: their holdings, with the decision that each has seen.
func published(t *testing.T, seen [2]stamp, words ...string) []shardHeld {
	var list []shardHeld
	for i, w := range words {
		list = append(list, shardHeld{number: i, document: &document{head{Version: stamp{Epoch: 5, Number: 1}, Seen: seen[i]}, devicesOf(t, w)}})
	}
	return list
}

// due is what is due to be taken by the last decisions to both shards; "settling" if alice waits.
func (j *judgeState) due() string {
	var list []string
	for shard := range 2 {
		for _, o := range j.lastSent[shard].Over {
			if o.Settling {
				return "settling"
			}
			for _, take := range o.Takes {
				if o.Due {
					list = append(list, string(take.Host))
				}
			}
		}
	}
	return strings.Join(list, " ")
}

// TestNothingElseIsTakenMeanwhile: what a shard may be taking counts until it says that it
// has seen a later decision.
func TestNothingElseIsTakenMeanwhile(t *testing.T) {
	at := func(number uint64) stamp { return stamp{9, number} }
	type step struct {
		seen   [2]stamp
		shards [2]string
		want   string
	}
	for name, steps := range map[string][]step{
		"a new judge waits until both have seen a decision of its own": {
			{[2]stamp{}, [2]string{"a:1 b:2", "c:3"}, "settling"},
			{[2]stamp{{8, 44}, at(1)}, [2]string{"a:1 b:2", "c:3"}, "settling"},
			{[2]stamp{at(1), {}}, [2]string{"a:1 b:2", "c:3"}, "settling"},
			{[2]stamp{at(1), at(1)}, [2]string{"a:1 b:2", "c:3"}, "a"},
		},
		"who holds nothing there needn't wait for a shard": {
			{[2]stamp{}, [2]string{"a:1 b:2 c:3", ""}, "settling"},
			{[2]stamp{at(1), {}}, [2]string{"a:1 b:2 c:3", ""}, "a"},
		},
		"the same is taken until it is gone": {
			{[2]stamp{}, [2]string{"a:1 b:2", "c:3"}, "settling"},
			{[2]stamp{at(1), at(1)}, [2]string{"a:1 b:2", "c:3"}, "a"},
			{[2]stamp{at(1), at(2)}, [2]string{"a:1 b:2", "c:3"}, "a"},
			{[2]stamp{at(2), at(2)}, [2]string{"b:2", "c:3"}, ""},
		},
		"a newer one elsewhere stays, since another one may be going": {
			{[2]stamp{}, [2]string{"a:1 b:2", "c:3 d:4"}, "settling"},
			{[2]stamp{at(1), at(1)}, [2]string{"a:1 b:2", "c:3"}, "a"},
			{[2]stamp{at(1), at(1)}, [2]string{"a:1 b:2", "c:0"}, "a"},
			{[2]stamp{at(2), at(2)}, [2]string{"a:1 b:2", "c:0"}, "a"},
			{[2]stamp{at(3), at(2)}, [2]string{"b:2", "c:0"}, ""},
		},
		"so do others that are attached again, in turn": {
			{[2]stamp{}, [2]string{"a:8 b:9", "c:9"}, "settling"},
			{[2]stamp{at(1), at(1)}, [2]string{"a:8 b:9", "c:9"}, "a"},
			{[2]stamp{at(1), at(1)}, [2]string{"a:8 b:9", "c:7"}, "a"},
			{[2]stamp{at(1), at(1)}, [2]string{"a:6 b:5", "c:7"}, "a"},
			{[2]stamp{at(1), at(3)}, [2]string{"a:6 b:5", "c:4"}, "a"},
			{[2]stamp{at(4), at(3)}, [2]string{"b:5", "c:4"}, ""},
		},
		"one that costs less waits for what may be going": {
			{[2]stamp{}, [2]string{"a:1b b:2b", "c:3b"}, "settling"},
			{[2]stamp{at(1), at(1)}, [2]string{"a:1b b:2b", "c:3b"}, "a"},
			{[2]stamp{at(1), at(1)}, [2]string{"a:1b b:2b", "c:3"}, "settling"},
			{[2]stamp{at(2), at(2)}, [2]string{"a:1b b:2b", "c:3"}, "settling"}, // which the shard may still use
			{[2]stamp{at(3), at(2)}, [2]string{"b:2b", "c:3"}, ""},              // it had been taken
		},
		"and goes if the other one was not taken": {
			{[2]stamp{}, [2]string{"a:1b b:2b", "c:3b"}, "settling"},
			{[2]stamp{at(1), at(1)}, [2]string{"a:1b b:2b", "c:3b"}, "a"},
			{[2]stamp{at(1), at(1)}, [2]string{"a:1b b:2b", "c:3"}, "settling"},
			{[2]stamp{at(3), at(3)}, [2]string{"a:1b b:2b", "c:3"}, "c"},
		},
		"one more elsewhere needn't wait": {
			{[2]stamp{}, [2]string{"a:1 b:2", "c:3"}, "settling"},
			{[2]stamp{at(1), at(1)}, [2]string{"a:1 b:2", "c:3"}, "a"},
			{[2]stamp{at(1), at(1)}, [2]string{"a:1 b:2", "c:3 d:0"}, "a d"},
		},
		"what has gone needn't be waited for": {
			{[2]stamp{}, [2]string{"a:1 b:2", "c:3"}, "settling"},
			{[2]stamp{at(1), at(1)}, [2]string{"a:1 b:2", "c:3"}, "a"},
			{[2]stamp{at(2), at(2)}, [2]string{"b:2", "c:3 d:0"}, "d"},
		},
		"one that was given back goes nowhere else": {
			{[2]stamp{}, [2]string{"a:1 b:2", "c:3"}, "settling"},
			{[2]stamp{at(1), at(1)}, [2]string{"a:1 b:2", "c:3"}, "a"},
			{[2]stamp{at(1), at(1)}, [2]string{"a:1", "c:3"}, ""},
		},
	} {
		j := newJudgeState(9)
		for i, s := range steps {
			due := j.decide(published(t, s.seen, s.shards[0], s.shards[1]), rulesOf(2), time.Duration(i)*repeatEvery)
			require.Len(t, due, 2, name)
			require.Equal(t, s.want, j.due(), "%s, step %d", name, i)
		}
	}
}

// A shard that doesn't say for long what it has seen may use any earlier decision.
func TestForgottenDecisions(t *testing.T) {
	j := newJudgeState(9)
	seen := [2]stamp{{9, 1}, {9, 1}}
	for i := range 3 * maxSent {
		j.decide(published(t, seen, "a:1 b:2", "c:3"), rulesOf(2), time.Duration(i)*repeatEvery)
		require.Equal(t, "a", j.due(), "all of them took the same")
		require.Len(t, j.sent[0], 1)
	}
	for i := range 3 * maxSent {
		j.noteSent(0, stamp{9, uint64(1000 + i)}, &holdings.Decision{Over: []holdings.Over{{User: "alice", Due: true, Takes: []holdings.Take{{Device: snapshot.DeviceIndex(i)}}}}})
	}
	require.Len(t, j.sent[0], maxSent)
	j.decide(published(t, [2]stamp{{9, 999}, {9, 999}}, "a:1 b:2", "c:3"), rulesOf(2), 2*time.Hour)
	require.Equal(t, "settling", j.due())
}

// What is unchanged is repeated from time to time only.
func TestRepeats(t *testing.T) {
	j, list := newJudgeState(9), published(t, [2]stamp{}, "a:1 b:2", "c:3")
	require.Len(t, j.decide(list, rulesOf(2), 0), 2)
	require.Empty(t, j.decide(list, rulesOf(2), repeatEvery-1))
	require.Len(t, j.decide(list, rulesOf(1), repeatEvery-1), 2, "it has changed")
	require.Len(t, j.decide(list, rulesOf(1), 2*repeatEvery), 2)
}

func TestFresh(t *testing.T) {
	one := &shardHeld{document: &document{head: head{Every: 10 * time.Second}}, since: time.Minute}
	require.True(t, one.fresh(time.Minute+35*time.Second))
	require.False(t, one.fresh(time.Minute+35*time.Second+1))
	one.Every = 1 << 60
	require.False(t, one.fresh(time.Hour), "whatever it says")
	one.Every = -one.Every
	require.True(t, one.fresh(time.Minute+tolerance))
	require.False(t, one.fresh(time.Minute+tolerance+1))
}

// Holdings are written in parts, and those of the users with the most are left out if need be.
func TestParts(t *testing.T) {
	h := &document{Shard: devicesOf(t, "a:1 b:2")}
	top, parts, err := h.encode()
	require.NoError(t, err)
	require.Len(t, parts, 1)
	read, err := decodeHead(top)
	require.NoError(t, err)
	s, err := read.decode(parts[0])
	require.NoError(t, err)
	require.Equal(t, h.Shard, s)
	_, err = read.decode(parts[0][1:])
	require.ErrorIs(t, err, holdings.ErrInvalid)

	largest := &holdings.Shard{Missing: 3, Hosts: h.Hosts, Users: []holdings.User{{Name: "bob"}, h.Users[0], {Name: "carol"}}}
	left := withoutLargest(largest, 0.1)
	require.Len(t, left.Users, 2)
	require.Len(t, largest.Users, 3)
	require.Equal(t, snapshot.Username("carol"), left.Users[1].Name)
	require.Equal(t, &holdings.Shard{Missing: 3}, withoutLargest(withoutLargest(left, 0.1), 0.1))
	require.Equal(t, &holdings.Shard{Missing: 3}, withoutLargest(&holdings.Shard{Missing: 3}, 0.1))
}

// TestTooMuch: of holdings that are too large, about as many users are left out as need be, in few steps, since
// each takes a second.
func TestTooMuch(t *testing.T) {
	for name, devices := range map[string]func(user int) int{
		"all hold the same": func(int) int { return 10 },
		"one holds most":    func(user int) int { return 1 + 4000*max(0, user-498) },
	} {
		s := &holdings.Shard{Hosts: make([]holdings.Host, 1)}
		for i := range 500 {
			s.Users = append(s.Users, holdings.User{Name: snapshot.Username(fmt.Sprint(i)), Devices: make([]*holdings.Device, devices(i))})
		}
		left := withoutLargest(s, 0.4)
		require.Len(t, s.Users, 500, name)
		require.Len(t, left.Users, map[string]int{"all hold the same": 300, "one holds most": 499}[name], name)
		require.Equal(t, s.Hosts, left.Hosts, name)
	}
}

func FuzzDocuments(f *testing.F) {
	h := &document{Shard: devicesOf(&testing.T{}, "a:1 b:2")}
	top, parts, err := h.encode()
	require.NoError(f, err)
	value, err := (&decision{From: map[int]stamp{1: {}}}).encode()
	require.NoError(f, err)
	f.Add(top, parts[0], value)
	other, err := json.Marshal(head{Schema: schema, Parts: 17})
	require.NoError(f, err)
	f.Add(other, []byte{}, []byte("{}"))
	f.Fuzz(func(t *testing.T, top, part, value []byte) {
		if h, err := decodeHead(top); err == nil {
			s, err := h.decode(part)
			require.True(t, (s != nil) != (err != nil))
		}
		d, err := decodeDecision(value)
		require.True(t, err != nil || d.Check() == nil)
	})
}
