package state_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-3119e985/genv/snapshot"
	"github.com/seed-3119e985/genv/snapshot/state"
)

// bookingTime is so many hours after the noon of a Monday.
func bookingTime(hours float64) time.Time {
	return time.Date(2026, 11, 30, 12, 0, 0, 0, time.UTC).Add(time.Duration(hours * float64(time.Hour)))
}

// booked is a reservation of uid, of GPUs from an hour after noon to another one.
func booked(id string, uid snapshot.UID, gpus int, from, until float64) snapshot.Reservation {
	return snapshot.Reservation{
		ID: id, UID: uid, GPUs: gpus, From: bookingTime(from), Until: bookingTime(until), Made: bookingTime(-100), Known: 8,
	}
}

func ended(r snapshot.Reservation, at float64, lapsed bool) snapshot.Reservation {
	t := bookingTime(at)
	r.Ended, r.Lapsed = &t, lapsed
	return r
}

func many(n int, uid func(int) snapshot.UID) (list []snapshot.Reservation) {
	for i := range n {
		list = append(list, booked(fmt.Sprint("m", i), uid(i), 1, float64(100+10*i), float64(101+10*i)))
	}
	return list
}

func byRoot(r snapshot.Reservation) snapshot.Reservation {
	r.ByRoot = true
	return r
}

func TestReserve(t *testing.T) {
	rule := &snapshot.ReservationRule{GPUs: 4, Longest: 24 * time.Hour, Ahead: 48 * time.Hour, AtOnce: 2, Pause: 6 * time.Hour}
	bound := &snapshot.ReservationRule{GPUs: 4}
	mine := func(int) snapshot.UID { return 1 }
	others := func(i int) snapshot.UID { return snapshot.UID(10 + i) }
	a := func(gpus int, from, until float64) snapshot.Reservation { return booked("a", 1, gpus, from, until) }
	b := func(gpus int, from, until float64) snapshot.Reservation { return booked("b", 1, gpus, from, until) }
	bobs := func(gpus int, from, until float64) snapshot.Reservation { return booked("b", 2, gpus, from, until) }
	forEver := a(1, 1, 2)
	forEver.Until = time.Date(9999, 12, 31, 23, 0, 0, 0, time.FixedZone("", -12*3600))
	at := func(hours float64) string { return bookingTime(hours).Format("Mon 2006-01-02 15:04 MST") }
	type list = []snapshot.Reservation
	for name, tt := range map[string]struct {
		have, elsewhere list
		ask             snapshot.Reservation
		rule            *snapshot.ReservationRule
		as              snapshot.UID
		want            string // of the error; empty for none
	}{
		"all of the rule":                        {ask: a(4, 1, 25), rule: rule, as: 1},
		"now":                                    {ask: a(1, 0, 1), rule: rule, as: 1},
		"this minute":                            {ask: a(1, -0.01, 1), rule: rule, as: 1},
		"root for somebody, beyond the rule":     {ask: a(8, 1, 400)},
		"a rule that bounds nothing":             {ask: a(8, 1, 4000), rule: &snapshot.ReservationRule{}, as: 1},
		"beside others":                          {have: list{bobs(4, 0, 9)}, ask: a(4, 1, 2), rule: rule, as: 1},
		"when others end":                        {have: list{bobs(8, 0, 9)}, ask: a(4, 9, 10), rule: rule, as: 1},
		"others that ended":                      {have: list{ended(bobs(8, 0, 9), -1, false)}, ask: a(4, 1, 2), rule: rule, as: 1},
		"after the pause":                        {have: list{b(1, -2, 1)}, ask: a(1, 7, 8), rule: rule, as: 1},
		"before another, with the pause":         {have: list{b(1, 20, 21)}, ask: a(1, 13, 14), rule: rule, as: 1},
		"one that was cancelled in time":         {have: list{ended(b(1, 20, 21), -1, false)}, ask: a(1, 20, 21), rule: rule, as: 1},
		"the same again":                         {have: append(many(7, mine), a(1, 300, 301)), ask: a(8, -5, -6), as: 1},
		"root without a user":                    {ask: booked("a", 0, 1, 1, 2), want: "say for whom, with --user"},
		"nothing":                                {ask: a(0, 1, 2), want: "reserve at least 1"},
		"more than there are":                    {ask: a(9, 1, 2), want: "this host has 8 GPUs, fewer than 9"},
		"the past":                               {ask: a(1, -1, 2), want: at(-1) + " is in the past"},
		"for ever, which JSON has not":           {ask: forEver, want: "its years are not from 1970 to 9000"},
		"backwards":                              {ask: a(1, 2, 2), want: "ends before it begins"},
		"no id":                                  {ask: booked("", 1, 1, 1, 2), want: "at most 16 letters and digits"},
		"an id like a table":                     {ask: booked("a  bob", 1, 1, 1, 2), want: "at most 16 letters and digits"},
		"another person's id":                    {have: list{booked("a", 2, 1, 1, 2)}, ask: a(1, 1, 2), as: 1, want: "another person's reservation has the id a"},
		"no rule":                                {ask: a(1, 1, 2), as: 1, want: "the policy lets you reserve nothing here"},
		"more GPUs than the rule":                {ask: a(5, 1, 2), rule: rule, as: 1, want: "at most 4 GPUs at once"},
		"more together":                          {have: list{b(2, 0, 3), booked("c", 1, 1, 2, 5), booked("d", 2, 2, 0, 9)}, ask: a(2, 1, 4), rule: bound, as: 1, want: "you may reserve at most 4 GPUs at once on a host, and have 3 reserved at " + at(2) + ", the first until " + at(3) + ": at most 1 GPU more then"},
		"no more together":                       {have: list{b(4, 0, 3)}, ask: a(1, 2, 4), rule: bound, as: 1, want: "and have 4 reserved at " + at(2) + ", the first until " + at(3) + ": no GPU more then"},
		"one that was cancelled doesn't count":   {have: list{ended(b(4, 1, 9), 0, false)}, ask: a(4, 2, 4), rule: bound, as: 1},
		"as many as before, later":               {have: list{b(4, 0, 3)}, ask: a(4, 3, 4), rule: bound, as: 1},
		"root's count, too":                      {have: list{byRoot(b(6, 1, 2))}, ask: a(1, 1, 4), rule: bound, as: 1, want: "and have 6 reserved at " + at(1) + ", the first until " + at(2) + ": no GPU more then"},
		"as many elsewhere":                      {elsewhere: list{b(4, 0, 3)}, ask: a(4, 1, 4), rule: bound, as: 1},
		"longer":                                 {ask: a(1, 1, 26), rule: rule, as: 1, want: "at most 1d, and this is 1d1h"},
		"further ahead":                          {ask: a(1, 49, 50), rule: rule, as: 1, want: "the latest start is " + at(48)},
		"more at once":                           {have: list{b(1, 20, 21)}, elsewhere: list{booked("c", 9, 1, 40, 41)}, ask: a(1, 1, 2), rule: rule, as: 1, want: "you have 2 reservations, and 2 may be at once, on all hosts together: ask again after " + at(21) + ", for a start from " + at(47)},
		"more at once, without a pause":          {have: list{b(1, 20, 21), booked("c", 1, 1, 1, 2)}, ask: a(1, 1, 2), rule: &snapshot.ReservationRule{AtOnce: 1}, as: 1, want: "on all hosts together: ask again after " + at(21)},
		"at the earliest start that was said":    {have: list{ended(b(1, -3, 9), -1.99, true)}, ask: a(1, 4+1/60.0, 8), rule: rule, as: 1},
		"a minute before that":                   {have: list{ended(b(1, -3, 9), -1.99, true)}, ask: a(1, 4, 8), rule: rule, as: 1, want: "the earliest start is Mon 2026-11-30 16:01 UTC"},
		"in the pause":                           {have: list{b(1, -2, 1)}, ask: a(1, 6, 8), rule: rule, as: 1, want: "6h later: the earliest start is " + at(7)},
		"in the pause of one elsewhere":          {elsewhere: list{booked("b", 9, 1, -2, 1)}, ask: a(1, 6, 8), rule: rule, as: 1, want: "the earliest start is " + at(7)},
		"too close before another":               {have: list{b(1, 20, 21)}, ask: a(1, 13, 15), rule: rule, as: 1, want: "the earliest start is " + at(27)},
		"in the pause of one cancelled too late": {have: list{ended(b(1, 3, 9), -1, false)}, ask: a(1, 4, 8), rule: rule, as: 1, want: "the earliest start is " + at(5)},
		"in the pause of one that lapsed":        {have: list{ended(b(1, -3, 9), -2, true)}, ask: a(1, 3, 8), rule: rule, as: 1, want: "the earliest start is " + at(4)},
		"what is reserved":                       {have: list{bobs(3, 0, 5), booked("c", 3, 2, 3, 9)}, ask: a(4, 1, 4), rule: rule, as: 1, want: "5 of the 8 GPUs of this host are reserved at " + at(3) + ", the first until " + at(5)},
		"the ninth of a person, also by root":    {have: many(8, mine), ask: a(1, 1, 2), want: "8 reservations are the maximum of one person"},
		"the 65th of a host":                     {have: many(64, others), ask: a(1, 1, 2), want: "this host has 64 reservations, its maximum: reserve on another host"},
	} {
		list, made, err := state.Reserve(tt.have, tt.ask, state.Reserver{UID: tt.as, Rule: tt.rule, Elsewhere: tt.elsewhere}, 8, bookingTime(0))
		if tt.want != "" {
			require.ErrorContains(t, err, tt.want, name)
			require.Equal(t, tt.have, list, name)
			continue
		}
		require.NoError(t, err, name)
		require.Contains(t, list, made, name)
		require.Equal(t, "a", made.ID, name)
		if len(list) > len(tt.have) {
			require.Equal(t, [2]time.Time{tt.ask.From, tt.ask.Until}, [2]time.Time{made.From, made.Until}, "%s: also of a late command", name)
		}
		again, same, err := state.Reserve(list, tt.ask, state.Reserver{UID: tt.as}, 8, bookingTime(0))
		require.NoError(t, err, name)
		require.Equal(t, list, again, "%s: a request that comes again makes nothing", name)
		require.Equal(t, made, same, name)
	}
}

func TestCancelReservation(t *testing.T) {
	list := []snapshot.Reservation{booked("a", 1, 1, 1, 2), booked("b", 2, 1, 20, 21)}
	for _, tt := range []struct {
		id   string
		by   snapshot.UID
		want string
	}{
		{"a", 1, ""},
		{"a", 0, ""},
		{"a", 2, "another person's"},
		{"b", 1, "another person's"},
		{"c", 1, "no reservation c"},
		{"", 0, "no reservation"},
	} {
		after, made, err := state.Cancel(list, tt.id, tt.by, bookingTime(0))
		if tt.want != "" {
			require.ErrorContains(t, err, tt.want)
			require.Equal(t, list, after)
			continue
		}
		require.NoError(t, err)
		require.Equal(t, bookingTime(0), *made.Ended)
		_, again, err := state.Cancel(after, tt.id, tt.by, bookingTime(0.5))
		require.NoError(t, err)
		require.Equal(t, made, again, "once")
	}
	require.Nil(t, list[0].Ended)
}

// A clock that is set back begins no reservation again, and what counts no more is forgotten.
func TestEndReservations(t *testing.T) {
	list := []snapshot.Reservation{booked("a", 1, 1, 1, 2), booked("b", 2, 1, 1, 20), booked("c", 1, 1, -9, -8)}
	after := state.End(list, map[string]bool{"b": true}, bookingTime(2), true)
	require.Equal(t, []snapshot.Reservation{ended(list[0], 2, false), ended(list[1], 2, true)}, after)
	require.Equal(t, after, state.End(after, nil, bookingTime(1.5), true))
	require.Empty(t, state.End(after, nil, bookingTime(24*400), true))
	require.Equal(t, list[:1], state.End(list[:1], nil, bookingTime(1.9), true))
	require.Equal(t, list[:2], state.End(list[:2], nil, bookingTime(24*4000), false), "by a clock that is in the future at the boot")
}

func TestOverbooked(t *testing.T) {
	// a, b and c are of uids 1, 2 and 3, and r is root's
	has := func(devices ...string) *state.Files {
		f := &state.Files{}
		for i, eid := range []snapshot.EnvID{"r", "a", "b", "c"} {
			f.Environments = append(f.Environments, snapshot.Environment{EID: eid, UID: snapshot.UID(i)})
		}
		for i, eids := range devices {
			d := snapshot.Device{Index: snapshot.DeviceIndex(i)}
			for _, eid := range eids {
				d.Attachments = append(d.Attachments, snapshot.Attachment{EID: snapshot.EnvID(eid)})
			}
			f.Devices = append(f.Devices, d)
		}
		return f
	}
	known := func(n int, r snapshot.Reservation) snapshot.Reservation { r.Known = n; return r }
	two := []snapshot.Reservation{known(4, booked("x", 1, 2, 0, 9))}
	for name, tt := range map[string]struct {
		files *state.Files
		list  []snapshot.Reservation
		at    float64
		want  int
	}{
		"others have what is left":          {has("b", "c", "", ""), two, 1, 0},
		"others have one more":              {has("b", "c", "c", ""), two, 1, 1},
		"before it begins":                  {has("b", "c", "c", "b"), two, -1, 0},
		"after its end":                     {has("b", "c", "c", "b"), two, 9, 0},
		"it was cancelled":                  {has("b", "c", "c", "b"), []snapshot.Reservation{ended(two[0], 0, false)}, 1, 0},
		"no reservations, or unknown":       {has("b", "c", "c", "b"), nil, 1, 0},
		"its owner has what is reserved":    {has("a", "a", "b", "c"), two, 1, 0},
		"its owner has more":                {has("a", "a", "a", "a"), two, 1, 0},
		"its owner has more, others others": {has("a", "a", "a", "ab"), two, 1, 0},
		"a shared GPU counts once":          {has("bc", "bc", "", ""), two, 1, 0},
		"root's GPUs don't count":           {has("r", "r", "b", "c"), two, 1, 0},
		"several reservations":              {has("a", "b", "c", "c"), append(two, known(4, booked("y", 2, 1, 0, 9))), 1, 1},
		"what isn't registered":             {has("b", "c", "z", "z"), two, 1, 0},
	} {
		require.Equal(t, tt.want, tt.files.Overbooked(tt.list, bookingTime(tt.at), nil), name)
	}
	used := map[snapshot.DeviceIndex][]snapshot.UID{0: {2}, 2: {3, 3}, 3: {0, 1}}
	require.Equal(t, 1, has("b", "b", "", "").Overbooked(two, bookingTime(1), used), "what processes use counts likewise")
}

// TestEndKeepsABoundedList: a host with more reservations than a controller reads would not be read at all.
func TestEndKeepsABoundedList(t *testing.T) {
	var list []snapshot.Reservation
	for i := range 2 * snapshot.MaxReserved {
		list = append(list, ended(booked(fmt.Sprint("m", i), snapshot.UID(i+1), 1, -2000+float64(i)/10, -1999+float64(i)/10), float64(i)/10-1999, true))
	}
	list = append(list, booked("holds", 1, 1, 1, 2))
	left := state.End(list, nil, bookingTime(0), true)
	require.Len(t, left, snapshot.MaxReserved-snapshot.MaxReservations+1)
	require.Equal(t, "holds", left[len(left)-1].ID)
	require.Equal(t, fmt.Sprint("m", 2*snapshot.MaxReserved-1), left[len(left)-2].ID, "the last ones still count")
}
