package rules_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-3119e985/genv/enforce"
	"github.com/seed-3119e985/genv/snapshot"
)

// TestAHostOfManyWaits is judged in a moment, whatever it says.
func TestAHostOfManyWaits(t *testing.T) {
	text := strings.Builder{}
	text.WriteString("a | env 1 alice u1001")
	for i := range 1024 {
		fmt.Fprintf(&text, " | dev %d", i)
		if i%2 == 0 {
			text.WriteString(" 1@01")
		}
	}
	all := make([]snapshot.DeviceIndex, 1024)
	for i := range all {
		all[i] = snapshot.DeviceIndex(i)
	}
	for name, change := range map[string]func(*snapshot.Wait){
		"all are offered to the last": func(w *snapshot.Wait) {
			if w.ID == "w2047" {
				w.Offered = all
			}
		},
		"for 63 of theirs": func(w *snapshot.Wait) { w.GPUs = 63 },
	} {
		t.Run(name, func(t *testing.T) {
			var waits []snapshot.Wait
			for i := range snapshot.MaxWaits {
				w := snapshot.Wait{ID: fmt.Sprint("w", i), UID: 1003, Username: "carol", GPUs: 600}
				change(&w)
				waits = append(waits, w)
			}
			c := withWaits(t, text.String(), waits...)
			policy := stated{list: []*enforce.Cap{listed("owners", 0, together, about("alice"), whileWaiting("carol"))}}
			var memory controllerMemory
			begun := time.Now()
			memory.Judge(policy, c, noon(0))
			require.Less(t, time.Since(begun), time.Minute, "it took hours")
		})
	}
}

// TestAHostOfManyReservations is it, too.
func TestAHostOfManyReservations(t *testing.T) {
	text := strings.Builder{}
	text.WriteString("a")
	for i := range 500 {
		fmt.Fprintf(&text, " | env %d u%d u%d", i+1, i+5000, i+5000)
	}
	for i := range 1024 {
		fmt.Fprintf(&text, " | dev %d %d@01", i, i%500+1)
	}
	var list []snapshot.Reservation
	for i := range snapshot.MaxReservations {
		list = append(list, bookedBy("carol", 1024, -i-1, 60+i, func(b *snapshot.Reservation) { b.ID, b.Known = fmt.Sprint(i), 1024 }))
	}
	var memory controllerMemory
	begun := time.Now()
	plan := memory.Judge(stated{}, reservedOn(t, text.String(), 0, list...), noon(0))
	require.NotEmpty(t, plan.Findings)
	require.Less(t, time.Since(begun), time.Minute)
}
