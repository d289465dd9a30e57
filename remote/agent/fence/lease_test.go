package fence_test

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-3119e985/genv/remote/agent/fence"
	"github.com/seed-3119e985/genv/snapshot/proc/proctest"
)

var (
	earlier = time.Date(2026, 3, 1, 10, 0, 0, 0, time.UTC)
	now     = earlier.Add(30 * time.Second)

	folder   = fence.Folder("jump")
	other    = fence.Folder("spare")
	run      = "run:1" // from a controller of an earlier version
	election = fence.Election(0xcdf818194e3a8c32, "/genv/lab")
)

func request(who string, epoch uint64, id string) *fence.LeaseRequest {
	return &fence.LeaseRequest{Who: who, Epoch: epoch, Controller: id, Name: "genv on " + id}
}

func taking(r *fence.LeaseRequest) *fence.LeaseRequest                { r.TakeOver = true; return r }
func started(r *fence.LeaseRequest, start string) *fence.LeaseRequest { r.Start = start; return r }

// given is a lease that a host gave earlier.
func given(t *testing.T, r *fence.LeaseRequest) *fence.Lease {
	t.Helper()
	return proctest.Try((*fence.Lease)(nil).Admit(r, earlier)).OK(t)
}

// TestStarts: a backup or a clone of a state folder may count on to the epoch of the start that
// still runs. Of the two only the one that got the lease acts there.
func TestStarts(t *testing.T) {
	first, second := started(request(folder, 7, "a"), "1"), started(request(folder, 7, "a"), "2")
	lease := given(t, first)
	for name, row := range map[string]struct {
		request *fence.LeaseRequest
		refused bool
	}{
		"the one that has the lease":        {first, false},
		"another one with its epoch":        {second, true},
		"that takes over":                   {taking(started(request(folder, 7, "a"), "2")), true},
		"of a version that names no starts": {request(folder, 7, "a"), false},
		"a later one":                       {started(request(folder, 8, "a"), "2"), false},
	} {
		require.Equal(t, row.refused, proctest.Try(lease.Admit(row.request, now)).Err != nil, name)
	}
	require.Same(t, lease, lease.GiveBack(second), "it isn't its to give back")
	require.NotSame(t, lease, lease.GiveBack(first))
	proctest.Try(given(t, request(folder, 7, "a")).Admit(second, now)).OK(t, "an earlier version gave it, and it may be this start")
}

func TestAdmit(t *testing.T) {
	for name, row := range map[string]struct {
		known, request *fence.LeaseRequest
		refused        string
		changed        bool
	}{
		"the first":                           {nil, request(folder, 1, "a"), "", true},
		"the same again":                      {request(folder, 7, "a"), request(folder, 7, "a"), "", false},
		"after a restart":                     {request(folder, 7, "a"), request(folder, 8, "a"), "", true},
		"the folder moved to another machine": {request(folder, 7, "a"), request(folder, 8, "b"), "", true},
		"replaced":                            {request(election, 9, "b"), request(election, 7, "a"), "refused: replaced by \"genv on b\" at 2026-03-01T10:00:00Z", false},
		"replaced by itself":                  {request(folder, 9, "a"), request(folder, 8, "a"), "refused: replaced by", false},
		"an equal epoch of another":           {request(folder, 9, "b"), request(folder, 9, "a"), "refused: replaced by", false},
		"lower, and taking over":              {request(folder, 9, "b"), taking(request(folder, 8, "a")), "refused: replaced by", false},
		"another folder":                      {request(folder, 1, "a"), request(other, 9, "b"), "acts on this host, since 2026-03-01T10:00:00Z", false},
		"another folder, taking over":         {request(folder, 9, "a"), taking(request(other, 1, "b")), "", true},
		"a folder after an election":          {request(election, 1, "a"), request(folder, 9, "a"), "acts on this host", false},
		"an election after a folder":          {request(folder, 1, "a"), request(election, 9, "a"), "acts on this host", false},
		"another key of the cluster":          {request(election, 1, "a"), request(fence.Election(0xcdf818194e3a8c32, "/genv/other"), 9, "a"), "acts on this host", false},
		"another cluster":                     {request(election, 1, "a"), request(fence.Election(1, "/genv/lab"), 9, "a"), "acts on this host", false},
		"a run":                               {nil, request(run, 1, "a"), "", false},
		"a run, where another acts":           {request(folder, 1, "a"), request(run, 1, "a"), "acts on this host", false},
		"a run, taking over":                  {request(folder, 1, "a"), taking(request(run, 1, "a")), "acts on this host", false},
		"a single cycle":                      {nil, nil, "", false},
		"a single cycle, where a folder acts": {request(folder, 1, "a"), nil, "acts on this host", false},
		"a single cycle, where one leads":     {request(election, 1, "a"), nil, "acts on this host", false},
	} {
		t.Run(name, func(t *testing.T) {
			var lease *fence.Lease
			if row.known != nil {
				lease = given(t, row.known)
				lease.Until = now.Add(time.Minute)
			}
			next, err := lease.Admit(row.request, now)
			if row.refused != "" {
				var refused *fence.RefusedError
				require.ErrorAs(t, err, &refused)
				require.ErrorContains(t, err, row.refused)
				require.Contains(t, err.Error(), "refused: ")
			} else {
				require.NoError(t, err)
			}
			if !row.changed {
				require.Same(t, lease, next)
				return
			}
			want := *row.request
			want.TakeOver, want.Back = false, false // it asks once, and isn't part of what is kept
			require.Equal(t, want, next.LeaseRequest)
			require.Equal(t, now, next.Since)
			require.Equal(t, now.Add(time.Minute), next.Until)
			require.False(t, next.GivenBack)
		})
	}
}

// Whatever requests come in which order: an epoch that was admitted once is never followed by a
// lower one of the same owner, unless another one was taken over between them.
func TestEpochsNeverDecrease(t *testing.T) {
	var lease *fence.Lease
	for _, epoch := range []uint64{3, 1, 5, 4, 5, 2, 9, 8} {
		before := lease
		next, err := lease.Admit(request(election, epoch, "a"), now)
		if before != nil {
			require.GreaterOrEqual(t, next.Epoch, before.Epoch)
			require.Equal(t, epoch < before.Epoch, err != nil)
		}
		lease = next
	}
	require.EqualValues(t, 9, lease.Epoch)
}

// A lease lasts a minute, or three intervals, and isn't written at each renewal.
func TestUntil(t *testing.T) {
	for seconds, lasts := range map[int]time.Duration{
		0: time.Minute, 3: time.Minute, 30: time.Minute, 900: 15 * time.Minute, 1 << 40: 24 * time.Hour, -5: time.Minute,
	} {
		r := request(folder, 7, "a")
		r.Seconds = seconds
		lease := given(t, r)
		require.Equal(t, earlier.Add(lasts), lease.Until)
		at := earlier.Add(lasts/2 - time.Second)
		again := proctest.Try(lease.Admit(r, at)).OK(t)
		require.Same(t, lease, again)
		at = at.Add(2 * time.Second)
		again = proctest.Try(lease.Admit(r, at)).OK(t)
		require.Equal(t, at.Add(lasts), again.Until)
		require.Equal(t, earlier, again.Since)
		set := proctest.Try(lease.Admit(r, earlier.Add(-time.Hour))).OK(t) // the clock of the host was set back
		require.Equal(t, earlier.Add(lasts-time.Hour), set.Until)
	}
}

// A single cycle is refused while a controller acts. Another controller waits a day for one that doesn't say anything
// any more.
func TestALeaseThatIsNotRenewed(t *testing.T) {
	for _, who := range []string{folder, election} {
		lease := given(t, request(who, 7, "a"))
		day := lease.Until.Add(fence.FreeAfter)
		for name, row := range map[string]struct {
			request *fence.LeaseRequest
			at      time.Time
			refused string
		}{
			"a single cycle, too early":  {nil, lease.Until.Add(-time.Second), "acts on this host"},
			"a single cycle":             {nil, lease.Until, ""},
			"another one, while it runs": {request(other, 1, "b"), lease.Until.Add(-time.Second), "acts on this host, since 2026-03-01T10:00:00Z"},
			"another one, soon":          {request(other, 1, "b"), lease.Until, "was last seen about 2026-03-01T10:01:00Z: the host waits a day for it"},
			"another one, in an hour":    {request(other, 1, "b"), lease.Until.Add(time.Hour), "waits a day"},
			"another one, almost":        {request(other, 1, "b"), day.Add(-time.Second), "waits a day"},
			"another one, in a day":      {request(other, 1, "b"), day, ""},
			"it takes over":              {taking(request(other, 1, "b")), lease.Until, ""},
			"the same one":               {request(who, 7, "a"), day.Add(time.Hour), ""},
			"the next one":               {request(who, 8, "b"), lease.Until, ""},
			"an earlier one":             {request(who, 6, "b"), day.Add(time.Hour), "replaced by"},
		} {
			_, err := lease.Admit(row.request, row.at)
			if row.refused == "" {
				require.NoError(t, err, name)
				continue
			}
			require.ErrorContains(t, err, row.refused, name)
		}
	}
}

// What an earlier version wrote has no end: it is taken to run until its controller renews it, or somebody takes over.
func TestALeaseOfAnEarlierVersion(t *testing.T) {
	const file = `{"schema":"genv.host.controller/1","source":"folder:jump","epoch":7,"controller":"a","name":"genv on a","start":"1",` +
		`"since":"2026-03-01T10:00:00Z","former":[{"source":"folder:x","epoch":1,"controller":"x"}]}`
	lease := proctest.Try(fence.Parse([]byte(file), "file")).OK(t)
	later := now.Add(100 * time.Hour)
	for name, row := range map[string]struct {
		request *fence.LeaseRequest
		refused bool
	}{
		"a single cycle":      {nil, true},
		"its controller":      {started(request(folder, 7, "a"), "1"), false},
		"another start of it": {started(request(folder, 7, "a"), "2"), true},
		"an earlier start":    {request(folder, 6, "a"), true},
		"a restart":           {request(folder, 8, "a"), false},
		"another one":         {request(other, 1, "b"), true},
		"one that takes over": {taking(request(other, 1, "b")), false},
	} {
		next, err := lease.Admit(row.request, later)
		require.Equal(t, row.refused, err != nil, name)
		require.Equal(t, row.refused, next.Until.IsZero(), "%s: %+v", name, next)
	}
	released := proctest.Try(fence.Parse([]byte(strings.Replace(file, `"since"`, `"released":true,"since"`, 1)), "file")).OK(t)
	proctest.Try(released.Admit(request(other, 1, "b"), later)).OK(t)
}

func TestGiveBack(t *testing.T) {
	for _, who := range []string{folder, election} {
		lease := given(t, request(who, 7, "a"))
		for name, r := range map[string]*fence.LeaseRequest{
			"another owner": request(other, 7, "a"), "an earlier start": request(who, 6, "a"), "another controller": request(who, 7, "b"), "none": nil,
		} {
			require.Same(t, lease, lease.GiveBack(r), name)
		}
		require.Nil(t, (*fence.Lease)(nil).GiveBack(request(who, 7, "a")))
		back := lease.GiveBack(request(who, 7, "a"))
		require.True(t, back.GivenBack)
		require.False(t, lease.GivenBack)
		for name, row := range map[string]struct {
			request  *fence.LeaseRequest
			admitted bool
		}{
			"another folder":          {request(other, 1, "b"), who == folder}, // the next leader has the lease of an election
			"one that takes over":     {taking(request(other, 1, "b")), true},
			"a single cycle":          {nil, true},
			"a run":                   {request(run, 1, "b"), true},
			"a restart":               {request(who, 8, "a"), true},
			"an earlier start":        {request(who, 6, "a"), false},
			"the host is added again": {request(who, 7, "a"), true},
		} {
			next, err := back.Admit(row.request, now)
			require.Equal(t, row.admitted, err == nil, name)
			require.NotNil(t, next, "%s: a lease is never forgotten", name)
		}
	}
}

// A start that took a host over and was replaced by somebody else doesn't take it over once
// more: its request was resent, since the answer to the first one was lost.
func TestATakeOverIsResent(t *testing.T) {
	first := taking(started(request(folder, 3, "a"), "1"))
	lease := given(t, first)
	lease.Until = now.Add(time.Minute)
	again := proctest.Try(lease.Admit(first, now)).OK(t)
	require.Same(t, lease, again, "nothing happened since")

	second := taking(started(request(other, 1, "b"), "2"))
	lease = proctest.Try(lease.Admit(second, now)).OK(t)
	for name, row := range map[string]struct {
		request  *fence.LeaseRequest
		admitted bool
	}{
		"resent":                   {first, false},
		"resent, without a start":  {taking(request(folder, 3, "a")), false},
		"an earlier start":         {taking(started(request(folder, 2, "a"), "0")), false},
		"of a leader, a new epoch": {taking(started(request(folder, 9, "a"), "1")), false},
		"a later start":            {taking(started(request(folder, 4, "a"), "3")), true},
		"another one":              {taking(started(request(election, 1, "c"), "4")), true},
		"the one that acts":        {second, true},
	} {
		_, err := lease.Admit(row.request, now)
		require.Equal(t, row.admitted, err == nil, "%s: %v", name, err)
	}
	proctest.Try(lease.GiveBack(second).Admit(started(request(folder, 3, "a"), "1"), now)).OK(t, "the other one has ended, and this one still runs")
}

// An elected leader that took a host over and was replaced there by somebody else doesn't hear of a
// later leader: it would take that for one of its own election, and go on.
func TestALeaderIsReplacedBySomebodyElse(t *testing.T) {
	for name, by := range map[string]string{"a folder": folder, "another election": fence.Election(1, "/genv/other")} {
		leader := taking(started(request(election, 7, "a"), "1"))
		lease := proctest.Try(given(t, leader).Admit(taking(request(by, 1, "b")), earlier)).OK(t, name)
		kept, err := lease.Admit(leader, now)
		require.EqualError(t, err, `refused: "genv on b" acts on this host, since 2026-03-01T10:00:00Z`, name)
		require.Same(t, lease, kept, name)
	}
}

// Hosts and controllers of earlier versions understand the keys.
func TestTheKeysOfEarlierVersions(t *testing.T) {
	r := taking(started(request(folder, 7, "a"), "1"))
	r.Seconds, r.Back = 30, true
	data := proctest.Try(json.Marshal(r)).OK(t)
	require.JSONEq(t, `{"source":"folder:jump","epoch":7,"controller":"a","name":"genv on a","start":"1","seconds":30,"take_over":true,"back":true}`, string(data))
	data = proctest.Try(json.Marshal(given(t, r).GiveBack(r))).OK(t)
	require.JSONEq(t, `{"source":"folder:jump","epoch":7,"controller":"a","name":"genv on a","start":"1","seconds":30,
		"since":"2026-03-01T10:00:00Z","until":"2026-03-01T10:01:00Z","released":true}`, string(data))
}

func TestCheck(t *testing.T) {
	require.NoError(t, request(folder, 1, "a").Check())
	require.NoError(t, request(election, 1<<63, "a").Check())
	for name, r := range map[string]*fence.LeaseRequest{
		"nothing":            {},
		"no owner":           request("", 1, "a"),
		"an unknown owner":   request("clock:1", 1, "a"),
		"no epoch":           request(folder, 0, "a"),
		"no controller":      request(folder, 1, ""),
		"a long owner":       request(fence.Folder(strings.Repeat("x", 512)), 1, "a"),
		"a long name":        request(folder, 1, strings.Repeat("x", 250)),
		"a long id and name": request(folder, 1, strings.Repeat("x", 256)),
	} {
		require.Error(t, r.Check(), name)
	}
}

func TestANameIsShownSafely(t *testing.T) {
	lease := given(t, &fence.LeaseRequest{Who: folder, Epoch: 2, Controller: "a", Name: "a\x1b[2J\nb"})
	_, err := lease.Admit(request(folder, 1, "b"), now)
	require.NotContains(t, err.Error(), "\x1b")
	require.NotContains(t, err.Error(), "\n")
}
