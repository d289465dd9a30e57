package rules_test

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-3119e985/genv/enforce"
	"github.com/seed-3119e985/genv/enforce/order"
)

// attachedTo is a host with ten GPUs, of which alice is attached to so many.
func attachedTo(n int) string {
	s := "a | env 1 alice u1001"
	for i := range 10 {
		s += " | dev " + itoa(i)
		if i < n {
			s += " 1@0" + itoa(i)
		}
	}
	return s
}

// Who takes more and more, or pauses for a moment, is warned once and in time of each thing.
func TestWarnedOfEachThing(t *testing.T) {
	policy := stated{all: enforce.Settings{Warn: enforce.Warn{For: 40 * time.Minute}}, list: []*enforce.Cap{listed("two", 2)}}
	for _, tt := range []struct {
		name string
		has  map[int]int // GPUs from a minute on, while nothing is taken
		want map[int]int // how many go, by minute
	}{
		{"more is added twice", map[int]int{0: 3, 10: 4, 30: 9}, map[int]int{40: 1, 50: 1, 70: 5}},
		{"a short pause of some of them", map[int]int{0: 5, 38: 3, 39: 5}, map[int]int{40: 3}},
		{"a pause and more", map[int]int{0: 5, 38: 3, 39: 6}, map[int]int{40: 3, 79: 1}},
		{"a long pause of some of them", map[int]int{0: 5, 30: 3, 36: 5}, map[int]int{40: 1, 76: 2}},
		{"fewer", map[int]int{0: 3, 10: 6, 20: 4}, map[int]int{40: 1, 50: 1}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			var memory controllerMemory
			has, taken := 0, map[int]int{}
			for minute := range 100 {
				if n, changes := tt.has[minute]; changes {
					has = n
				}
				plan := planText(memory.Judge(policy, parseCluster(t, attachedTo(has)), noon(minute)))
				if n := strings.Count(plan, "detach"); n > 0 {
					taken[minute], has = n, has-n
				}
			}
			require.Equal(t, tt.want, taken)
		})
	}
}

// What got SIGTERM and still runs counts as gone: nothing else is lost in its place.
func TestWhatCannotBeEndedCountsAsGone(t *testing.T) {
	const began = "a | dev 0 | dev 1 | proc 10 - u1001 by:alice started-at:8 0:1 | proc 11 - u1001 by:alice started-at:9 1:1"
	policy := stated{all: enforce.Settings{CountOutside: true}, list: []*enforce.Cap{listed("one", 1)}}
	var memory controllerMemory
	plan := memory.Judge(policy, parseCluster(t, began), noon(0))
	require.Equal(t, "a end 11", planText(plan))
	memory.Learn("a", plan.Orders[0].Order, []order.Outcome{{PID: 11, Status: order.StatusSurvived}})
	plan = memory.Judge(policy, parseCluster(t, strings.Replace(began, "10 - u1001 by:alice started-at:8", "12 - u1001 by:alice started-at:10", 1)), noon(0).Add(10*time.Second))
	require.Empty(t, planText(plan))
	require.Len(t, plan.Findings[0].Stuck, 1)
}
