package service_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-3119e985/genv/snapshot"
	"github.com/seed-3119e985/genv/snapshot/proc/proctest"
	"github.com/seed-3119e985/genv/snapshot/state/service"
)

// reserveChild is a child: SOCKET RESERVATION books it, SOCKET cancel ID cancels it.
func reserveChild(args []string) error {
	client := service.Client{Path: args[0]}
	ctx := context.Background()
	var asked, got snapshot.Reservation
	var freed time.Time
	err := json.Unmarshal([]byte(args[1]), &asked)
	if len(args) > 2 {
		got, err = client.CancelReservation(ctx, args[2])
	} else if err == nil {
		got, freed, err = client.Reserve(ctx, asked)
	}
	if err != nil {
		return err
	}
	fmt.Println("uid", got.UID, "GPUs", got.GPUs, "ended", got.Ended != nil)
	if freed.After(got.From) {
		fmt.Println("freed after", freed.Sub(got.Made))
	}
	return nil
}

// reservations are kept in root's note, by the clock of the test.
func (h *host) reservations() *service.Reservations {
	return &service.Reservations{
		Load: h.store.Reservations, Save: h.store.SaveReservations,
		GPUs: func(context.Context) (int, error) { return 4, nil },
	}
}

// book reserves two GPUs for an hour, unless change says something else, and returns what is said.
func (h *host) book(t *testing.T, uid int, id string, from time.Duration, change func(*snapshot.Reservation)) string {
	t.Helper()
	r := snapshot.Reservation{ID: id, UID: alice, GPUs: 2, From: time.Now().Add(from), Until: time.Now().Add(from + time.Hour)}
	if change != nil {
		change(&r)
	}
	data := proctest.Try(json.Marshal(r)).OK(t)
	output, _ := child(t, uid, "reserve", h.socket, string(data)).CombinedOutput() // it says why it failed
	return strings.TrimSpace(string(output))
}

func (h *host) cancel(t *testing.T, uid int, id string) string {
	output, _ := child(t, uid, "reserve", h.socket, "{}", id).CombinedOutput()
	return strings.TrimSpace(string(output))
}

// shows has the host show these processes.
func (h *host) shows(list ...snapshot.Process) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.used = list
}

func (h *host) allow(t *testing.T, a service.Allowance) {
	t.Helper()
	a.ForMS = 60_000
	require.NoError(t, h.client().Allow(t.Context(), a))
}

// TestReservations: what the policy says decides who may reserve, and from its start others are refused what is reserved.
func TestReservations(t *testing.T) {
	h := rootHost(t, 4)
	h.reserves = h.reservations()
	h.serve(t, service.Bounds{})
	require.Contains(t, h.book(t, alice, "a", 0, nil), "only root may reserve GPUs while no policy is enforced here")
	h.allow(t, service.Allowance{})
	begun := time.Now()
	require.Contains(t, h.book(t, alice, "a", 0, nil), "it isn't known yet what the policy lets you reserve here")
	require.Less(t, time.Since(begun), 5*time.Second, "it is asked for once, though more than one look fits into that")
	elsewhere := snapshot.Reservation{ID: "e", GPUs: 1, From: time.Now().Add(time.Hour), Until: time.Now().Add(2 * time.Hour)}
	h.allow(t, service.Allowance{People: map[snapshot.UID]service.Person{
		alice:   {Reservable: &service.Reservable{ReservationRule: snapshot.ReservationRule{GPUs: 2, AtOnce: 1}}},
		mallory: {Reservable: &service.Reservable{ReservationRule: snapshot.ReservationRule{AtOnce: 1}, Elsewhere: []snapshot.Reservation{elsewhere}}},
		4003:    {},
	}})
	require.Contains(t, h.book(t, 4003, "a", 0, nil), "the policy lets you reserve nothing here")
	require.Contains(t, h.book(t, mallory, "a", 0, nil), "you have 1 reservation, and 1 may be at once")
	require.Contains(t, h.book(t, alice, "a", 0, func(r *snapshot.Reservation) { r.GPUs = 3 }), "you may reserve at most 2 GPUs at once")
	require.Contains(t, h.book(t, alice, "a", 0, func(r *snapshot.Reservation) { r.Reason = "\x1b]0;x" }), "control character")
	require.Equal(t, "uid 4001 GPUs 2 ended false", h.book(t, alice, "a", 0, func(r *snapshot.Reservation) { r.UID = mallory }), "it is the asker's own")
	require.Contains(t, h.book(t, mallory, "a", 0, nil), "another person's reservation has the id a")
	require.Contains(t, h.book(t, 0, "a", 0, func(r *snapshot.Reservation) { r.UID = 0 }), "another person's reservation has the id a")
	require.Contains(t, h.book(t, 0, "r", 0, func(r *snapshot.Reservation) { r.UID = 0 }), "say for whom, with --user")
	require.Equal(t, "uid 4001 GPUs 2 ended false", h.book(t, alice, "a", 0, nil), "once")
	require.Equal(t, "uid 4001 GPUs 1 ended false", h.book(t, 0, "b", 2*time.Hour, func(r *snapshot.Reservation) { r.GPUs = 1 }), "root books for others, beyond the policy")

	require.Equal(t, []string{"now []", "now [0 1]"}, h.ask(t, mallory, `{"enter":{"eid":"m","pid":PID}}`, `{"attach":{"eid":"m","count":2}}`))
	answers := h.ask(t, mallory, `{"enter":{"eid":"m","pid":PID}}`, `{"attach":{"eid":"m","count":3}}`, `{"attach":{"eid":"m","count":2}}`)
	require.Contains(t, answers[1], "error: 2 GPUs of this host are reserved by somebody, until ")
	require.Equal(t, "now [0 1]", answers[2])
	h.shows(snapshot.Process{PID: 1, UID: new(snapshot.UID(4003)), Usage: []snapshot.DeviceUsage{{Index: 2}, {Index: 3}}})
	require.Contains(t, h.ask(t, mallory, `{"enter":{"eid":"m","pid":PID}}`, `{"attach":{"eid":"m","count":1}}`)[1], "are reserved by somebody", "others use the rest")
	h.shows()
	require.Equal(t, []string{"now []", "now [0 1]"}, h.ask(t, alice, `{"enter":{"eid":"a","pid":PID}}`, `{"attach":{"eid":"a","count":2}}`))
	require.Equal(t, []string{"now []", "now [0 1 2 3]"}, h.ask(t, 0, `{"enter":{"eid":"r","pid":PID}}`, `{"attach":{"eid":"r","count":4}}`))

	require.Contains(t, h.cancel(t, mallory, "a"), "another person's")
	require.Contains(t, h.cancel(t, alice, "c"), "this host has no reservation c")
	require.Equal(t, "uid 4001 GPUs 2 ended true", h.cancel(t, alice, "a"))
	require.Equal(t, []string{"now []", "now [0 1 2]"}, h.ask(t, mallory, `{"enter":{"eid":"m","pid":PID}}`, `{"attach":{"eid":"m","count":3}}`))
	require.Equal(t, "uid 4001 GPUs 1 ended true", h.cancel(t, 0, "b"))
}

// TestReservationsWithinCaps: the reservations of a person count together, where the cap is surely about them.
func TestReservationsWithinCaps(t *testing.T) {
	h := rootHost(t, 4)
	h.reserves = h.reservations()
	h.serve(t, service.Bounds{})
	require.Equal(t, "uid 4001 GPUs 2 ended false", h.book(t, 0, "a", 0, nil))
	own := service.Cap{Name: "own", Counts: "gpus", GPUs: []snapshot.DeviceIndex{0, 1, 2}}
	allowed := func(elsewhere ...snapshot.Reservation) {
		hers := service.Person{Reservable: &service.Reservable{ReservationRule: snapshot.ReservationRule{Warn: 30 * time.Minute}}, Caps: []service.CapUse{{Limit: 2, Booked: elsewhere}}}
		h.allow(t, service.Allowance{Caps: []service.Cap{own}, People: map[snapshot.UID]service.Person{alice: hers}})
	}
	one := func(r *snapshot.Reservation) { r.GPUs = 1 }
	allowed()
	require.Contains(t, h.book(t, alice, "b", 0, nil), "cap own allows you 2 GPUs: reserve at most 1 here at that time")
	require.Equal(t, "uid 4001 GPUs 1 ended false", h.book(t, alice, "c", 10*time.Minute, one), "one GPU isn't of the cap")
	require.Contains(t, h.book(t, alice, "d", 10*time.Minute, one), "reserve at most 0 here at that time")
	require.Equal(t, "uid 4001 GPUs 1 ended true", h.cancel(t, alice, "c"))
	elsewhere := snapshot.Reservation{ID: "e", GPUs: 1, From: time.Now(), Until: time.Now().Add(time.Hour)}
	allowed(elsewhere)
	require.Contains(t, h.book(t, alice, "e", 0, one), "reserve at most 0 here at that time")
	own.Until = time.Now().Add(9 * time.Minute)
	allowed(elsewhere)
	require.Contains(t, h.book(t, alice, "e", 5*time.Minute, one), "reserve at most 0 here at that time")
	require.Equal(t, "uid 4001 GPUs 1 ended false", h.book(t, alice, "e", 10*time.Minute, one), "its schedule ends before")
	require.Equal(t, "uid 4001 GPUs 1 ended true", h.cancel(t, alice, "e"))
	h.shows(snapshot.Process{PID: 1, UID: new(snapshot.UID(mallory)), Usage: []snapshot.DeviceUsage{{Index: 2}, {Index: 3}}})
	require.Equal(t, "uid 4001 GPUs 1 ended false\nfreed after 30m0s", h.book(t, alice, "f", 10*time.Minute, one))
	require.Equal(t, "uid 4001 GPUs 1 ended true", h.cancel(t, alice, "f"))
	require.Equal(t, "uid 4001 GPUs 1 ended false", h.book(t, alice, "g", 31*time.Minute, one), "they have to, by its start")
}

// none is a host of which nothing is held.
func none() (func(*snapshot.Reservation) bool, error) {
	return func(*snapshot.Reservation) bool { return false }, nil
}

// A reservation lapses of which nothing was held for half an hour without a break; while that is unknown, it doesn't.
func TestAReservationLapses(t *testing.T) {
	proctest.NeedRoot(t)
	t.Parallel()
	const held, unheld, unknown = "held", "unheld", "unknown"
	for name, tt := range map[string]struct {
		holds  func(minute int) string
		lapses int // the minute, or 0
	}{
		"never held":              {func(int) string { return unheld }, 30},
		"held":                    {func(int) string { return held }, 0},
		"held once in 29 minutes": {func(m int) string { return map[bool]string{true: held, false: unheld}[m%29 == 0] }, 0},
		"given up":                {func(m int) string { return map[bool]string{true: held, false: unheld}[m <= 10] }, 41},
		"unknown":                 {func(int) string { return unknown }, 0},
		"unknown in between":      {func(m int) string { return map[bool]string{true: unknown, false: unheld}[m == 20] }, 51},
	} {
		h := newHostIn(t, "/tmp", 4)
		r, now := h.reservations(), time.Now()
		require.NoError(t, h.store.SaveReservations([]snapshot.Reservation{
			{ID: "a", UID: alice, GPUs: 1, From: now, Until: now.Add(time.Hour), Made: now, Known: 4},
			{ID: "b", UID: mallory, GPUs: 1, From: now.Add(2 * time.Hour), Until: now.Add(3 * time.Hour), Made: now, Known: 4},
		}))
		lapsed := 0
		for minute := range 60 {
			require.NoError(t, r.Tend(now.Add(time.Duration(minute)*time.Minute), func() (func(*snapshot.Reservation) bool, error) {
				var err error
				if tt.holds(minute) == unknown {
					err = errors.New("nvidia-smi doesn't answer")
				}
				return func(b *snapshot.Reservation) bool { return b.UID == alice && tt.holds(minute) == held }, err
			}), name)
			list := proctest.Try(h.store.Reservations()).OK(t)
			if list[0].Lapsed && lapsed == 0 {
				lapsed = minute
			}
			require.Nil(t, list[1].Ended, name)
		}
		require.Equal(t, tt.lapses, lapsed, name)
		require.NoError(t, r.Tend(now.Add(time.Hour), none))
		require.NotNil(t, proctest.Try(h.store.Reservations()).OK(t)[0].Ended, name)
	}
}

// A new service goes on with the time for which nothing is held, and looks once more before it acts on it. By a clock that
// isn't believed yet, which may be in the future, nothing ends.
func TestReservationsAfterARestart(t *testing.T) {
	proctest.NeedRoot(t)
	h, now := newHost(t, 4), time.Now()
	require.NoError(t, h.store.SaveReservations([]snapshot.Reservation{
		{ID: "a", UID: alice, GPUs: 1, From: now, Until: now.Add(2 * time.Hour), Made: now, Known: 4},
	}))
	tend := func(r *service.Reservations, minute int) snapshot.Reservation {
		t.Helper()
		require.NoError(t, r.Tend(now.Add(time.Duration(minute)*time.Minute), none))
		list := proctest.Try(h.store.Reservations()).OK(t)
		return list[0]
	}
	before := h.reservations()
	for minute := range 20 {
		require.Nil(t, tend(before, minute).Ended)
	}
	believed := false
	after := h.reservations()
	after.Believed = func() bool { return believed }
	require.Nil(t, tend(after, 1_000_000).Ended)
	require.Nil(t, tend(after, 1_000_040).Ended)
	believed = true
	require.Nil(t, tend(after, 29).Ended)
	require.True(t, tend(after, 30).Lapsed, "not after another half an hour")
	require.NoError(t, h.store.SaveReservations([]snapshot.Reservation{
		{ID: "a", UID: alice, GPUs: 1, From: now, Until: now.Add(2 * time.Hour), Made: now, Known: 4, Unheld: &now},
	}))
	later := h.reservations()
	require.Nil(t, tend(later, 100).Ended, "the clock may have been set")
	require.True(t, tend(later, 101).Lapsed)
}

// Reservations that can't be read are unknown: none is made, and none counts.
func TestReservationsThatAreLost(t *testing.T) {
	h := rootHost(t, 4)
	require.Error(t, proctest.Try(h.store.Reservations()).Err, "before the service ran")
	r := h.reservations()
	list := proctest.Try(r.All()).OK(t)
	require.Empty(t, list)
	list = proctest.Try(h.store.Reservations()).OK(t)
	require.NotNil(t, list, "known to be none")
	garbled := h.reservations()
	garbled.Load = func() ([]snapshot.Reservation, error) { return nil, snapshot.ErrInvalid }
	_, err := garbled.All()
	require.ErrorContains(t, err, "the reservations of this host can't be read")

	path := filepath.Join(h.store.OwnedPath(), "reservations.json")
	for _, text := range []string{`{"schema":"genv.reservations/1"}`, `null`, ``, `{"schema":"genv.reservations/1","reservations":[`} {
		require.NoError(t, os.WriteFile(path, []byte(text), 0o644))
		require.ErrorIs(t, proctest.Try(h.reservations().All()).Err, snapshot.ErrInvalid, text)
	}
	require.NoError(t, os.Remove(path))
	require.ErrorContains(t, proctest.Try(h.reservations().All()).Err, "reservations.json is lost", "it isn't the first start")
	require.NoError(t, r.Tend(time.Now(), nil), "a service that runs knows them")
}

// TestReserveAndCancel makes the list no longer, however often.
func TestReserveAndCancel(t *testing.T) {
	h := rootHost(t, 4)
	h.reserves = h.reservations()
	h.serve(t, service.Bounds{})
	for i := range 20 {
		r := snapshot.Reservation{ID: fmt.Sprint("r", i), UID: alice, GPUs: 1, From: time.Now().Add(time.Hour), Until: time.Now().Add(2 * time.Hour)}
		_, _, err := h.client().Reserve(t.Context(), r)
		require.NoError(t, err)
		proctest.Try(h.client().CancelReservation(t.Context(), r.ID)).OK(t)
	}
	require.LessOrEqual(t, len(proctest.Try(h.store.Reservations()).OK(t)), 2)
}
