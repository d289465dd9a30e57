package watch

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-3119e985/genv/snapshot"
)

// simulated is a machine with the time of the test.
type simulated struct {
	*pace
	now   time.Time
	ended map[snapshot.PID]bool
	uses  map[snapshot.PID]bool
	shown string // what the last look showed
	looks []time.Duration
	since time.Time
}

func newSimulated() *simulated {
	begin := time.Date(2026, 11, 20, 12, 0, 0, 0, time.UTC)
	m := &simulated{pace: newPace(), now: begin, since: begin, ended: map[snapshot.PID]bool{}, uses: map[snapshot.PID]bool{}}
	m.shown = m.shows()
	return m
}

func (m *simulated) shows() string { return fmt.Sprint(m.uses) }

func (m *simulated) alive(o opener) bool { return !m.ended[o.pid] }

// until looks as often as the pace wants to, each for 10 ms, until a time after the begin.
func (m *simulated) until(at time.Duration) {
	for {
		next, ok := m.next()
		if !ok || next.After(m.since.Add(at)) {
			break
		}
		if next.After(m.now) {
			m.now = next
		}
		if !m.isDue(m.now, m.alive) {
			continue
		}
		m.looks = append(m.looks, m.now.Sub(m.since))
		m.look()
	}
	m.now = m.since.Add(at)
}

func (m *simulated) look() {
	m.lookBegins(m.now)
	m.now = m.now.Add(10 * time.Millisecond)
	shown := m.shows()
	m.lookEnds(m.now, shown != m.shown, func(pid snapshot.PID) bool { return m.uses[pid] }, m.alive)
	m.shown = shown
}

func (m *simulated) opens(uid int, pid snapshot.PID) {
	m.happened(source{party(uid), opener{pid, 1}}, m.now)
}

// whole is the looks in milliseconds.
func (m *simulated) whole() string {
	var words []string
	for _, at := range m.looks {
		words = append(words, fmt.Sprint(at.Milliseconds()))
	}
	return strings.Join(words, " ")
}

func TestWhenToLook(t *testing.T) {
	for name, row := range map[string]struct {
		do   func(m *simulated)
		want string // milliseconds
	}{
		"nothing happened": {func(*simulated) {}, ""},
		"an opener that uses the device": {func(m *simulated) {
			m.uses[7] = true
			m.opens(1001, 7)
		}, "20"},
		"an opener that begins later": {func(m *simulated) {
			m.opens(1001, 7)
			m.until(250 * time.Millisecond)
			m.uses[7] = true
		}, "20 120 220 320"},
		"an opener that only looks": {func(m *simulated) { m.opens(1001, 7) }, "20 120 220 320 520 920 1720 3320 6520"},
		"an opener that has ended": {func(m *simulated) {
			m.opens(1001, 7)
			m.ended[7] = true
		}, ""},
		"an opener that ends after a look": {func(m *simulated) {
			m.opens(1001, 7)
			m.until(50 * time.Millisecond)
			m.ended[7] = true
		}, "20"},
		"a user that is known opens another device": {func(m *simulated) {
			m.uses[7] = true
			m.opens(1001, 7)
			m.until(10 * time.Second)
			m.opens(1001, 7)
		}, "20 10020"},
		"a state file":         {func(m *simulated) { m.happened(source{party: stateFiles}, m.now) }, "0"},
		"the end of a process": {func(m *simulated) { m.happened(source{party: processEnds}, m.now) }, "0"},
		"nothing within 100 ms of a look": {func(m *simulated) {
			m.look()
			m.happened(source{party: processEnds}, m.now)
		}, "100"},
		"a look for another reason serves all": {func(m *simulated) {
			m.happened(source{party: stateFiles}, m.now)
			m.look()
		}, ""},
		"watching begins": {func(m *simulated) { m.begins(m.now) }, "0 800 2400 5600"},
		"a process that opened a device before": {func(m *simulated) {
			m.begins(m.now)
			m.until(time.Second)
			m.uses[7] = true
		}, "0 800 2400 2500 2600 2700 2900 3300 4100 5700 8900"},
		"an event during a look needs another one": {func(m *simulated) {
			m.lookBegins(m.now)
			m.happened(source{party: processEnds}, m.now)
			m.lookEnds(m.now, false, func(snapshot.PID) bool { return false }, m.alive)
		}, "100"},
	} {
		t.Run(name, func(t *testing.T) {
			m := newSimulated()
			row.do(m)
			m.until(time.Hour)
			require.Equal(t, row.want, m.whole())
		})
	}
}

// every has something done at a rate for a while.
func (m *simulated) every(d, long time.Duration, do func(i int)) {
	for i := 0; time.Duration(i)*d < long; i++ {
		m.until(time.Duration(i) * d)
		do(i)
	}
	m.until(long)
}

func TestWhatKeepsOpeningCostsLittle(t *testing.T) {
	for name, row := range map[string]struct {
		every time.Duration
		do    func(m *simulated, i int)
		most  int // looks in 10 minutes
	}{
		"a program that runs nvidia-smi every second": {time.Second, func(m *simulated, i int) {
			m.ended[snapshot.PID(i)] = true
			m.opens(1001, snapshot.PID(i+1)) // it takes a second
		}, 50},
		"a daemon that opens all devices every second": {time.Second, func(m *simulated, _ int) { m.opens(1001, 7) }, 25},
		"as many opens as one process can make":        {20 * time.Millisecond, func(m *simulated, _ int) { m.opens(1001, 7) }, 25},
		"as many processes that stay":                  {100 * time.Millisecond, func(m *simulated, i int) { m.opens(1001, snapshot.PID(i+1)) }, 600},
		"as many changes of the state files":           {20 * time.Millisecond, func(m *simulated, _ int) { m.happened(source{party: stateFiles}, m.now) }, 130},
		"openers that aren't known":                    {20 * time.Millisecond, func(m *simulated, _ int) { m.happened(source{party: unknownOpener}, m.now) }, 130},
	} {
		t.Run(name, func(t *testing.T) {
			m := newSimulated()
			m.every(row.every, 10*time.Minute, func(i int) { row.do(m, i) })
			require.LessOrEqual(t, len(m.looks), row.most)
			require.NotEmpty(t, m.looks)
			require.LessOrEqual(t, len(m.reasons), maxOfParty+1, "what is remembered is bounded")

			// Another user's violation is found at once, this one's within some seconds.
			begun := m.now.Sub(m.since)
			m.looks = nil
			m.uses[999999] = true
			m.opens(1002, 999999)
			m.until(begun + 150*time.Millisecond)
			require.NotEmpty(t, m.looks)
			m.until(begun + 10*time.Second)
			begun, m.looks = m.now.Sub(m.since), nil
			m.uses[999998] = true
			m.opens(1001, 999998)
			m.until(begun + 2500*time.Millisecond)
			require.NotEmpty(t, m.looks)
		})
	}
}

func TestFloorBetweenLooks(t *testing.T) {
	m := newSimulated()
	m.every(time.Millisecond, 2*time.Second, func(i int) { // each changes what is there
		m.uses[snapshot.PID(i+1)] = true
		m.opens(1001, snapshot.PID(i+1))
		m.happened(source{party: processEnds}, m.now)
	})
	require.LessOrEqual(t, len(m.looks), 21)
	require.GreaterOrEqual(t, len(m.looks), 18, "but what changes is looked at")
}
