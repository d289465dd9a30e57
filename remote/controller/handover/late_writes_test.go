package handover_test

import (
	"bytes"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"

	"github.com/seed-3119e985/genv/remote/controller/handover"
	"github.com/seed-3119e985/genv/remote/election/etcd"
	"github.com/seed-3119e985/genv/remote/operator"
)

// What operators asked for doesn't age: it is there also if the rest can't be continued.
func TestAHoldDoesNotAge(t *testing.T) {
	s, m, now := newStore(), memoryOf(2), noon
	require.NotNil(t, m.Operator.Hold)
	require.NoError(t, (&handover.Publisher{Store: s, Key: "/lab"}).Publish(t.Context(), 7, encode(t, &m, noon)))
	later := noon.Add(61 * time.Minute)
	got, _, err := follow(t, s, &later).Memory(later)
	require.Error(t, err)
	require.Equal(t, m.Operator.Hold.Reason, got.Operator.Hold.Reason)
	require.Empty(t, got.Rules.Findings)

	s.entries["/lab/memory/head"] = etcd.Entry{Key: "/lab/memory/head", Value: []byte("x"), Modified: 99}
	got, _, err = follow(t, s, &now).Memory(noon)
	require.Error(t, err)
	require.Contains(t, got.Operator.Hold.Reason, "can't be read")
}

// What is written late is not written over what is newer.
func TestOlderDocuments(t *testing.T) {
	s, m := newStore(), memoryOf(2)
	p := handover.Publisher{Store: s, Key: "/lab"}
	now := noon.Add(time.Minute)
	without := m
	without.Operator = operator.State{}
	older, newer := encode(t, &without, noon), encode(t, &m, noon.Add(time.Second))
	require.NoError(t, p.Publish(t.Context(), 7, newer))
	require.NoError(t, p.Publish(t.Context(), 7, older))
	got, _, err := follow(t, s, &now).Memory(now)
	require.NoError(t, err)
	require.NotNil(t, got.Operator.Hold)
}

// A controller that has led learns again how far clocks are apart: what it learned of a leader
// before is no correction of what it wrote itself.
func TestAFollowerThatHasLed(t *testing.T) {
	const key = "env-devices/gpu-0000/7/100"
	s, m := newStore(), memoryOf(1) // of what began a minute before noon
	now, clock := noon.Add(10*time.Minute), time.Duration(0)
	p := handover.Publisher{Store: s, Key: "/lab"}
	f := &handover.Follower{Store: s, Key: "/lab", Now: func() time.Time { return now }, Clock: func() time.Duration { return clock }}
	require.NoError(t, f.Poll(t.Context()))
	require.NoError(t, p.Publish(t.Context(), 7, encode(t, &m, noon))) // by a clock 10 minutes behind
	now, clock = now.Add(time.Second), clock+time.Second
	require.NoError(t, f.Poll(t.Context()))

	s.epoch = 9 // it leads now, and its clock is set right
	now, clock = noon, clock+time.Minute
	require.NoError(t, p.Publish(t.Context(), 9, encode(t, &m, now)))
	f.Restart()
	require.Zero(t, f.Epoch())
	require.NoError(t, f.Poll(t.Context()))
	require.EqualValues(t, 9, f.Epoch())
	got, _, err := f.Memory(now)
	require.NoError(t, err)
	require.WithinDuration(t, noon.Add(-time.Minute), got.Rules.Present[key].Since, time.Second)
}

// A write whose answer was lost, and that arrives after a newer one, changes nothing.
func TestAWriteThatArrivesLate(t *testing.T) {
	s, m, now := newStore(), memoryOf(2), noon.Add(time.Minute)
	p := handover.Publisher{Store: s, Key: "/lab"}
	require.NoError(t, p.Publish(t.Context(), 7, encode(t, &m, noon)))
	s.stalls = true
	for key := range m.Rules.Idle { // for long
		m.Rules.Idle[key] = noon.Add(-3 * time.Hour)
	}
	require.Error(t, p.Publish(t.Context(), 7, encode(t, &m, noon.Add(time.Second))))
	s.stalls = false
	for key := range m.Rules.Idle { // not any more
		m.Rules.Idle[key] = noon
	}
	require.NoError(t, p.Publish(t.Context(), 7, encode(t, &m, noon.Add(2*time.Second))))
	require.False(t, s.late())
	got, _, err := follow(t, s, &now).Memory(now)
	require.NoError(t, err)
	require.Len(t, got.Rules.Idle, 2)
	for _, since := range got.Rules.Idle {
		require.True(t, noon.Equal(since))
	}

	// One that arrives before the next write is carried out, and then that one isn't.
	s.stalls = true
	require.Error(t, p.Publish(t.Context(), 7, encode(t, &m, noon.Add(3*time.Second))))
	s.stalls = false
	require.True(t, s.late())
	require.NoError(t, p.Publish(t.Context(), 7, encode(t, &m, noon.Add(4*time.Second))))
}

// Documents of many goroutines don't mix.
func TestDocuments(t *testing.T) {
	var work errgroup.Group
	for i := range 8 {
		work.Go(func() error {
			for n := range 10 {
				want := strings.Repeat(fmt.Sprint("user ", i, " "), n)
				data, err := handover.Pack(map[string]string{"text": want})
				if err != nil {
					return err
				}
				var read map[string]string
				if err := handover.UnpackWithin(data, 1<<20, &read); err != nil || read["text"] != want {
					return fmt.Errorf("%w: %s instead of %s", err, read, want)
				}
			}
			return nil
		})
	}
	require.NoError(t, work.Wait())
}

func TestWhatIsNoDocument(t *testing.T) {
	_, err := handover.Pack(func() {})
	require.Error(t, err)
	whole, err := handover.Pack(strings.Repeat("a", 1<<20))
	require.NoError(t, err)
	require.Less(t, len(whole), 10_000)
	var text string
	require.NoError(t, handover.UnpackWithin(whole, 1<<20+3, &text)) // quotes, and the end of the line
	require.Len(t, text, 1<<20)
	require.ErrorContains(t, handover.UnpackWithin(whole, 1<<20, &text), "more than 1048576 bytes")
	require.Error(t, handover.UnpackWithin(whole, 1<<21, &struct{}{}), "another document")
	for _, data := range [][]byte{nil, []byte("{}"), whole[:len(whole)/2], bytes.Replace(whole, whole[len(whole)-4:], []byte{0, 0, 0, 0}, 1)} {
		require.Error(t, handover.UnpackWithin(data, 1<<21, &text))
	}
}
