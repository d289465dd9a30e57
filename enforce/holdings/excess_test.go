package holdings_test

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-3119e985/genv/enforce/contents"
	"github.com/seed-3119e985/genv/enforce/holdings"
	"github.com/seed-3119e985/genv/snapshot"
)

// shardOf makes holdings of alice from words: HOST:DEVICE=AGE is a device of 10 bytes to which
// one environment was attached AGE minutes ago. After AGE: b is busy, r only reported to be,
// x exempt, l leaves anyway, and s is busy by a process that can't be ended.
func shardOf(t *testing.T, words string) *holdings.Shard {
	s := &holdings.Shard{}
	alice := holdings.User{Name: "alice", Due: holdings.Caps(0).With(holdings.Envs).With(holdings.Devices).With(holdings.Memory)}
	for word := range strings.FieldsSeq(words) {
		var device, age int
		name, rest, _ := strings.Cut(word, ":")
		number, flags, _ := strings.Cut(rest, "=")
		_, err := fmt.Sscan(number, &device)
		require.NoError(t, err)
		_, err = fmt.Sscan(strings.TrimRight(flags, "brxls"), &age)
		require.NoError(t, err)
		if len(s.Hosts) == 0 || s.Hosts[len(s.Hosts)-1].Name != snapshot.Hostname(name) {
			s.Hosts = append(s.Hosts, holdings.Host{Name: snapshot.Hostname(name)})
			alice.Hosts++
		}
		host, eid := len(s.Hosts)-1, snapshot.EnvID(fmt.Sprintf("%s-%d", name, device))
		attached := snapshot.DateOf(time.Date(2026, 1, 1, 12, -age, 0, 0, time.UTC))
		d := holdings.Device{Host: host, Index: snapshot.DeviceIndex(device), Newest: attached, Oldest: attached, Bytes: 10, Envs: []holdings.Attached{{EID: eid, Leaves: strings.Contains(flags, "l")}}}
		if strings.ContainsAny(flags, "brs") {
			d.Processes = []holdings.Use{{Process: len(s.Processes), Attached: true}}
			s.Processes = append(s.Processes, holdings.Process{Host: host, PID: 1, Reported: strings.Contains(flags, "r"), Stuck: strings.Contains(flags, "s")})
		}
		if strings.Contains(flags, "x") {
			d.Exempt = contents.Proven
		}
		alice.Devices = append(alice.Devices, &d)
		alice.Envs = append(alice.Envs, holdings.Env{Host: host, EID: eid, Created: attached, Cost: 1 + int8(len(d.Processes)), Loses: []holdings.Loss{{Device: d.Index}}})
	}
	if len(s.Hosts) > 0 {
		s.Users = []holdings.User{alice}
	}
	return s
}

func limited(c holdings.Cap, limit int) holdings.Rules {
	return holdings.Rules{Limits: func(snapshot.Username) (l holdings.Limits) {
		bytes := int64(10 * limit)
		switch c {
		case holdings.Envs:
			l.Envs = &limit
		case holdings.Devices:
			l.Devices = &limit
		default:
			l.Memory = &bytes
		}
		return l
	}}
}

// taken are the devices or environments that are taken, as HOST:DEVICE.
func taken(s *holdings.Shard, e holdings.Excess) string {
	var list []string
	for _, d := range e.Devices {
		list = append(list, fmt.Sprintf("%s:%d", s.Hosts[d.Host].Name, d.Index))
	}
	for _, env := range e.Envs {
		list = append(list, strings.Replace(string(env.EID), "-", ":", 1))
	}
	return strings.Join(list, " ")
}

// TestExcess: a decision was made from earlier holdings, and is applied to those of now.
func TestExcess(t *testing.T) {
	for _, row := range []struct {
		name           string
		here, there    string // when it was decided,
		now            string // and the holdings of here now
		limit          int
		want           string // taken here; "within" if there is no excess
		wantOfEnvsToo  bool
		wantElsewhere  string
		unlikeForBytes bool // the cap of memory takes something else
		again          bool // an earlier decision had no effect
	}{
		{name: "nothing changed", here: "a:0=1 a:1=2", there: "b:0=3 b:1=4 b:2=5", now: "a:0=1 a:1=2", limit: 4, want: "a:0", wantOfEnvsToo: true},
		{name: "what is older stays elsewhere", here: "a:0=1 a:1=9", there: "b:0=2 b:1=8", now: "a:0=1 a:1=9", limit: 2, want: "a:0", wantElsewhere: "b:0", wantOfEnvsToo: true},
		{name: "taken elsewhere", here: "a:0=8 a:1=9", there: "b:0=1 b:1=2 b:2=3", now: "a:0=8 a:1=9", limit: 4, wantElsewhere: "b:0", wantOfEnvsToo: true},
		{name: "given back meanwhile", here: "a:0=1 a:1=2", there: "b:0=3 b:1=4 b:2=5", now: "a:1=2", limit: 4, want: "within", wantOfEnvsToo: true},
		{name: "another one given back", here: "a:0=1 a:1=2", there: "b:0=3 b:1=4 b:2=5", now: "a:0=1", limit: 4, want: "within", wantOfEnvsToo: true},
		{name: "all given back", here: "a:0=1 a:1=2", there: "b:0=3 b:1=4 b:2=5", now: "", limit: 4, want: "within", wantOfEnvsToo: true},
		{name: "one of two given back", here: "a:0=1 a:1=2 a:2=3", there: "b:0=8", now: "a:1=2 a:2=3", limit: 2, want: "a:1", wantOfEnvsToo: true},
		{name: "two are to go and another one was given back", here: "a:0=1 a:1=2 a:2=3", there: "b:0=8", now: "a:0=1 a:1=2", limit: 2, want: "a:0", wantOfEnvsToo: true},
		{name: "given back where nothing was to go", here: "a:0=8 a:1=9", there: "b:0=1 b:1=2 b:2=3", now: "a:0=8", limit: 4, want: "within", wantElsewhere: "b:0", wantOfEnvsToo: true},
		{name: "one of two given back, the other is to go elsewhere", here: "a:0=1 a:1=9", there: "b:0=2 b:1=8", now: "a:0=1", limit: 2, want: "", wantElsewhere: "b:0", wantOfEnvsToo: true},
		{name: "given back for a new one", here: "a:0=1 a:1=2", there: "b:0=3 b:1=4 b:2=5", now: "a:1=2 a:2=0", limit: 4, wantOfEnvsToo: true},
		{name: "a new one more waits for the next decision", here: "a:0=1 a:1=2", there: "b:0=3 b:1=4 b:2=5", now: "a:0=1 a:1=2 a:2=0", limit: 4, want: "a:0", wantOfEnvsToo: true},
		{name: "given back and attached again", here: "a:0=1 a:1=2", there: "b:0=3 b:1=4 b:2=5", now: "a:0=0 a:1=2", limit: 4, wantOfEnvsToo: true},
		{name: "given back and attached again each time", here: "a:0=1 a:1=2", there: "b:0=3 b:1=4 b:2=5", now: "a:0=0 a:1=2", limit: 4, want: "a:0", wantOfEnvsToo: true, again: true},
		{name: "with a new one more, only what was decided", here: "a:0=1 a:1=2", there: "b:0=3 b:1=4 b:2=5", now: "a:0=0 a:1=2 a:2=0", limit: 4, want: "a:0", wantOfEnvsToo: true, again: true},
		{name: "one of two attached again", here: "a:0=1 a:1=2 a:2=3", there: "b:0=8", now: "a:0=0 a:1=2 a:2=3", limit: 2, want: "a:0 a:1", wantOfEnvsToo: true, again: true},
		{name: "and another one given back", here: "a:0=1 a:1=2 a:2=3", there: "b:0=8", now: "a:0=0 a:1=2", limit: 2, want: "a:0", wantOfEnvsToo: true, again: true},
		{name: "attached again for another one", here: "a:0=1 a:1=2", there: "b:0=3 b:1=4 b:2=5", now: "a:0=0", limit: 4, want: "within", wantOfEnvsToo: true, again: true},
		{name: "given back for a new one each time", here: "a:0=1 a:1=2", there: "b:0=3 b:1=4 b:2=5", now: "a:1=2 a:2=0", limit: 4, want: "a:2", wantOfEnvsToo: true, again: true},
		{name: "given back for two new ones, one for one", here: "a:0=1 a:1=2", there: "b:0=3 b:1=4 b:2=5", now: "a:1=2 a:2=1 a:3=0", limit: 4, want: "a:3", wantOfEnvsToo: true, again: true},
		{name: "both given back for new ones", here: "a:0=1 a:1=2 a:2=3", there: "b:0=8", now: "a:2=3 a:3=1 a:4=0", limit: 2, want: "a:4 a:3", wantOfEnvsToo: true, again: true},
		{name: "both given back, and one new one", here: "a:0=1 a:1=2 a:2=3", there: "b:0=8", now: "a:2=3 a:3=0", limit: 2, want: "a:3", wantOfEnvsToo: true, again: true},
		{name: "one of two given back for a new one", here: "a:0=1 a:1=2 a:2=3", there: "b:0=8", now: "a:1=2 a:2=3 a:3=0", limit: 2, want: "a:1 a:3", wantOfEnvsToo: true, again: true},
		{name: "one given back, and the other is enough", here: "a:0=1 a:1=2 a:2=3", there: "b:0=8", now: "a:1=2 a:2=3", limit: 2, want: "a:1", wantOfEnvsToo: true, again: true},
		{name: "two given back for a new one", here: "a:0=1 a:1=2", there: "b:0=3 b:1=4 b:2=5", now: "a:2=0", limit: 4, want: "within", wantOfEnvsToo: true, again: true},
		{name: "given back for a new one, the other is to go elsewhere", here: "a:0=1 a:1=9", there: "b:0=2 b:1=8", now: "a:2=0", limit: 2, wantElsewhere: "b:0", wantOfEnvsToo: true, again: true},
		{name: "a new one where nothing was to go", here: "a:0=8 a:1=9", there: "b:0=1 b:1=2 b:2=3", now: "a:0=8 a:2=0", limit: 4, wantElsewhere: "b:0", wantOfEnvsToo: true, again: true},
		{name: "given back for a busy one", here: "a:0=1 a:1=2b", there: "b:0=3 b:1=4 b:2=5", now: "a:1=2b a:2=0b", limit: 4, wantOfEnvsToo: true, again: true},
		{name: "given back for an exempt one", here: "a:0=1 a:1=2b", there: "b:0=3 b:1=4 b:2=5", now: "a:1=2b a:2=0x", limit: 4, again: true},
		{name: "busy and given back for another busy one", here: "a:0=1b a:1=2b", there: "b:0=3b b:1=4b b:2=5b", now: "a:1=2b a:2=0b", limit: 4, want: "a:2", unlikeForBytes: true, again: true},
		{name: "attached again and busy", here: "a:0=1 a:1=2", there: "b:0=3 b:1=4 b:2=5", now: "a:0=0b a:1=2", limit: 4, again: true},
		{name: "attached again and exempt", here: "a:0=1 a:1=2", there: "b:0=3 b:1=4 b:2=5", now: "a:0=0x a:1=2", limit: 4, again: true},
		{name: "busy meanwhile", here: "a:0=1 a:1=2", there: "b:0=3 b:1=4 b:2=5", now: "a:0=1b a:1=2", limit: 4},
		{name: "reported to be busy meanwhile", here: "a:0=1 a:1=2", there: "b:0=3 b:1=4 b:2=5", now: "a:0=1r a:1=2", limit: 4},
		{name: "idle meanwhile", here: "a:0=1b a:1=2b", there: "b:0=3b b:1=4b b:2=5b", now: "a:0=1 a:1=2b", limit: 4, want: "a:0", unlikeForBytes: true},
		{name: "exempt meanwhile", here: "a:0=1 a:1=2", there: "b:0=3 b:1=4 b:2=5", now: "a:0=1x a:1=2", limit: 4},
		{name: "leaves anyway by now", here: "a:0=1 a:1=2", there: "b:0=3 b:1=4 b:2=5", now: "a:0=1l a:1=2", limit: 4, want: "within"},
		{name: "on another host of the same name as before", here: "a:0=1 c:0=2", there: "b:0=3 b:1=4 b:2=5", now: "c:0=2 a:0=1", limit: 4, want: "a:0", wantOfEnvsToo: true},
		{name: "nothing may be taken", here: "a:0=1", there: "b:0=2", now: "a:0=1", limit: 0, want: "a:0", wantElsewhere: "b:0", wantOfEnvsToo: true},
	} {
		for _, c := range []holdings.Cap{holdings.Devices, holdings.Memory, holdings.Envs} {
			if c == holdings.Envs && !row.wantOfEnvsToo || c == holdings.Memory && row.unlikeForBytes {
				continue
			}
			here, there, now := shardOf(t, row.here), shardOf(t, row.there), shardOf(t, row.now)
			decisions := holdings.Decide([]*holdings.Shard{here, there}, limited(c, row.limit))
			require.Len(t, decisions[0].Over, 1, row.name)
			decisions[0].Over[0].Again = row.again
			excess, over := now.Remaining().Excess(&decisions[0].Over[0])
			got := taken(now, excess)
			if !over {
				got = "within"
			}
			require.Equal(t, row.want, got, "%s, cap %d", row.name, c)
			elsewhere, _ := there.Remaining().Excess(&decisions[1].Over[0])
			require.Equal(t, row.wantElsewhere, taken(there, elsewhere), "%s, cap %d", row.name, c)
		}
	}
}

// TestDecide: what of two shards is to go, and whether it is due.
func TestDecide(t *testing.T) {
	for _, row := range []struct {
		name     string
		one, two string
		change   func(one, two *holdings.Shard, rules *holdings.Rules)
		limit    int
		want     [2]string
		due      bool
		missing  int
	}{
		{name: "within the cap", one: "a:0=1", two: "b:0=2", limit: 2},
		{name: "idle before busy", one: "a:0=1b", two: "b:0=9", limit: 1, want: [2]string{"", "b:0"}, due: true},
		{name: "reported before busy", one: "a:0=1b", two: "b:0=9r", limit: 1, want: [2]string{"", "b:0"}, due: true},
		{name: "the newest first", one: "a:0=2", two: "b:0=1", limit: 1, want: [2]string{"", "b:0"}, due: true},
		{name: "exempt ones never", one: "a:0=1x", two: "b:0=9", limit: 1, want: [2]string{"", "b:0"}, due: true},
		{name: "exempt ones only", one: "a:0=1x", two: "b:0=9x", limit: 1, due: true},
		{name: "what leaves anyway doesn't count", one: "a:0=1l", two: "b:0=9", limit: 1},
		{name: "of what costs the same, the first in the fleet", one: "a:0=1", two: "b:0=1", limit: 1, want: [2]string{"a:0", ""}, due: true},
		{name: "also if its shard comes second", one: "z:0=1", two: "b:0=1", limit: 1, want: [2]string{"", "b:0"}, due: true},
		{name: "the warning lasts where something is to go", one: "a:0=1", two: "b:0=2", limit: 1, want: [2]string{"a:0", ""}, change: func(one, _ *holdings.Shard, _ *holdings.Rules) {
			one.Users[0].Due = 0
		}},
		{name: "the warning lasts elsewhere", one: "a:0=1", two: "b:0=2", limit: 1, want: [2]string{"a:0", ""}, due: true, change: func(_, two *holdings.Shard, _ *holdings.Rules) {
			two.Users[0].Due = 0
		}},
		{name: "hosts are missing", one: "a:0=1", two: "b:0=2", limit: 1, want: [2]string{"a:0", ""}, due: true, missing: 5, change: func(one, _ *holdings.Shard, rules *holdings.Rules) {
			one.Missing, rules.Missing = 2, 3
		}},
		{name: "and caps wait for them", one: "a:0=1", two: "b:0=2", limit: 1, want: [2]string{"a:0", ""}, missing: 3, change: func(_, _ *holdings.Shard, rules *holdings.Rules) {
			rules.Missing, rules.Pause = 3, true
		}},
		{name: "caps wait only for hosts", one: "a:0=1", two: "b:0=2", limit: 1, want: [2]string{"a:0", ""}, due: true, change: func(_, _ *holdings.Shard, rules *holdings.Rules) {
			rules.Pause = true
		}},
		{name: "no cap", one: "a:0=1", two: "b:0=2", change: func(_, _ *holdings.Shard, rules *holdings.Rules) {
			rules.Limits = func(snapshot.Username) (none holdings.Limits) { return none }
		}},
	} {
		shards := []*holdings.Shard{shardOf(t, row.one), shardOf(t, row.two)}
		rules := limited(holdings.Devices, row.limit)
		if row.change != nil {
			row.change(shards[0], shards[1], &rules)
		}
		var got [2]string
		for i, decision := range holdings.Decide(shards, rules) {
			require.Equal(t, row.missing, decision.Missing, row.name)
			for _, over := range decision.Over {
				require.Equal(t, row.due, over.Due, row.name)
				excess, still := shards[i].Remaining().Excess(&over)
				require.True(t, still, row.name)
				require.Equal(t, 2, excess.Used.Count, row.name)
				require.Equal(t, 2, excess.Used.Hosts, row.name)
				got[i] = taken(shards[i], excess)
			}
		}
		require.Equal(t, row.want, got, row.name)
	}
}

// TestWhatOneCapTakesCountsForNoOther: once it is due. A process that can't be ended goes on.
func TestWhatOneCapTakesCountsForNoOther(t *testing.T) {
	one := 1
	for words, want := range map[string]int{"a:0=1 a:1=2": 1, "a:0=1b a:1=2b": 1} {
		s := shardOf(t, words)
		rules := holdings.Rules{Limits: func(snapshot.Username) holdings.Limits { return holdings.Limits{Envs: &one, Devices: &one} }}
		require.Len(t, holdings.Decide([]*holdings.Shard{s}, rules)[0].Over, want, words)
		s.Users[0].Due = 0
		require.Len(t, holdings.Decide([]*holdings.Shard{s}, rules)[0].Over, 2, "%s: while the user is warned, each cap is exceeded", words)
	}
	// b:0 is also used without an attachment, by a process that ends with a:0 or is stuck.
	for flags, want := range map[string]int{"b": 1, "s": 2} {
		s := shardOf(t, "a:0=1"+flags+" a:1=2")
		s.Users[0].Envs[0].Loses[0].Processes = []int{0}
		s.Users[0].Envs[0].Cost = 0
		s.Users[0].Devices[0].Processes[0].Attached = false
		rules := holdings.Rules{Limits: func(snapshot.Username) holdings.Limits { return holdings.Limits{Envs: &one, Devices: &one} }}
		require.Len(t, holdings.Decide([]*holdings.Shard{s}, rules)[0].Over, want, flags)
	}
}

func FuzzDocuments(f *testing.F) {
	for _, words := range []string{"", "a:0=1b a:1=2x", "a:0=1 b:0=2r b:1=3l"} {
		data, err := json.Marshal(shardOf(&testing.T{}, words))
		require.NoError(f, err)
		f.Add(data, []byte(`{"over":[{"user":"alice","cap":1,"limit":1,"due":true,"takes":[{"host":"a","device":1,"cost":3}]}],"missing":1}`))
	}
	f.Add([]byte(`{"hosts":[{"name":"a"}],"users":[{"user":"alice","first":1}]}`), []byte(`{"over":[{"user":"alice","cap":7}]}`))
	f.Fuzz(func(t *testing.T, data, decision []byte) {
		s, d := &holdings.Shard{}, &holdings.Decision{}
		if json.Unmarshal(data, s) != nil || json.Unmarshal(decision, d) != nil {
			return
		}
		if err := s.Check(); err != nil {
			require.ErrorIs(t, err, holdings.ErrInvalid)
			return
		}
		for c := holdings.Envs; c <= holdings.Memory; c++ {
			for _, o := range holdings.Decide([]*holdings.Shard{s, {}}, limited(c, 1))[0].Over {
				s.Remaining().Excess(&o)
			}
		}
		if err := d.Check(); err != nil {
			require.ErrorIs(t, err, holdings.ErrInvalid)
			return
		}
		remaining := s.Remaining()
		for i := range d.Over {
			excess, _ := remaining.Excess(&d.Over[i])
			remaining.Take(&excess)
		}
	})
}

// TestDecideAlone: what it says leaves is what Excess finds, one cap after the other.
func TestDecideAlone(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	for range 2000 {
		var words []string
		for _, host := range "abc" {
			for device := range random.IntN(4) {
				words = append(words, fmt.Sprintf("%c:%d=%d%s", host, device, random.IntN(9), []string{"", "b", "r", "x", "l", "s"}[random.IntN(6)]))
			}
		}
		s := shardOf(t, strings.Join(words, " "))
		if len(s.Users) > 0 && random.IntN(3) == 0 {
			s.Users[0].Due = 0
		}
		envs, devices, bytes := random.IntN(6), random.IntN(6), int64(random.IntN(60))
		rules := holdings.Rules{Limits: func(snapshot.Username) holdings.Limits {
			return holdings.Limits{Envs: &envs, Devices: &devices, Memory: &bytes}
		}}
		decision, excesses := holdings.DecideAlone(s, rules)
		require.Equal(t, holdings.Decide([]*holdings.Shard{s}, rules)[0], decision, words)
		require.Len(t, excesses, len(decision.Over), words)
		remaining := s.Remaining()
		for i := range decision.Over {
			want, over := remaining.Excess(&decision.Over[i])
			require.True(t, over, words)
			require.Equal(t, want.Used, excesses[i].Used, words)
			require.ElementsMatch(t, want.Devices, excesses[i].Devices, words)
			require.ElementsMatch(t, want.Envs, excesses[i].Envs, words)
			if decision.Over[i].Due {
				remaining.Take(&want)
			}
		}
	}
}

// TestWhatMayBeGoingGoesFirst: of what costs the same.
func TestWhatMayBeGoingGoesFirst(t *testing.T) {
	for _, row := range []struct {
		name, one, two, going string
		want                  [2]string
	}{
		{name: "nothing is going", one: "a:0=1 a:1=2", two: "b:0=3", want: [2]string{"a:0", ""}},
		{name: "an older one", one: "a:0=1 a:1=2", two: "b:0=3", going: "a:1", want: [2]string{"a:1", ""}},
		{name: "one of another shard", one: "a:0=1 a:1=2", two: "b:0=3", going: "b:0", want: [2]string{"", "b:0"}},
		{name: "one that is not there any more", one: "a:0=1 a:1=2", two: "b:0=3", going: "b:1", want: [2]string{"a:0", ""}},
		{name: "one that costs more stays", one: "a:0=1 a:1=2", two: "b:0=3b", going: "b:0", want: [2]string{"a:0", ""}},
	} {
		for c := holdings.Envs; c <= holdings.Memory; c++ {
			shards := []*holdings.Shard{shardOf(t, row.one), shardOf(t, row.two)}
			rules := limited(c, 2)
			rules.Going = func(user snapshot.Username, shard int, of holdings.Cap, take holdings.Take) bool {
				require.Equal(t, snapshot.Username("alice"), user)
				require.Equal(t, c, of)
				require.Equal(t, shard == 1, take.Host == "b")
				return row.going == fmt.Sprintf("%s:%d", take.Host, take.Device) || row.going == strings.Replace(string(take.EID), "-", ":", 1)
			}
			var got [2]string
			for i, decision := range holdings.Decide(shards, rules) {
				excess, _ := shards[i].Remaining().Excess(&decision.Over[0])
				got[i] = taken(shards[i], excess)
			}
			require.Equal(t, row.want, got, "%s, cap %d", row.name, c)
		}
	}
}
