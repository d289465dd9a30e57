package fence_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-3119e985/genv/remote/agent/fence"
)

var (
	earlier = time.Date(2026, 3, 1, 10, 0, 0, 0, time.UTC)
	now     = earlier.Add(time.Hour)

	folder   = fence.FolderSource("jump")
	other    = fence.FolderSource("spare")
	run      = fence.RunSource("1")
	election = fence.ElectionSource(0xcdf818194e3a8c32, "/genv/lab")
)

func claim(source string, epoch uint64, id string) *fence.Claim {
	return &fence.Claim{Source: source, Epoch: epoch, Controller: id, Name: "genv on " + id}
}

func taking(c *fence.Claim) *fence.Claim { c.TakeOver = true; return c }

func back(c *fence.Claim) *fence.Claim { c.Back = true; return c }

func started(c *fence.Claim, start string) *fence.Claim { c.Start = start; return c }

// TestStarts: a backup or a clone of a state folder may count on to the epoch of the start that
// still runs. Of the two only the one that the host noted acts there.
func TestStarts(t *testing.T) {
	first, second := started(claim(folder, 7, "a"), "1"), started(claim(folder, 7, "a"), "2")
	note, err := (*fence.Note)(nil).Admit(first, earlier)
	require.NoError(t, err)
	for name, row := range map[string]struct {
		claim   *fence.Claim
		refused bool
	}{
		"the one that is noted":             {first, false},
		"another one with its epoch":        {second, true},
		"that takes over":                   {taking(started(claim(folder, 7, "a"), "2")), true},
		"that asks to go on":                {back(started(claim(folder, 7, "a"), "2")), true},
		"of a version that names no starts": {claim(folder, 7, "a"), false},
		"a later one":                       {started(claim(folder, 8, "a"), "2"), false},
	} {
		_, err := note.Admit(row.claim, now)
		require.Equal(t, row.refused, err != nil, name)
	}
	require.Same(t, note, note.Release(second), "it isn't its to release")
	require.NotSame(t, note, note.Release(first))

	unnamed, err := (*fence.Note)(nil).Admit(claim(folder, 7, "a"), earlier)
	require.NoError(t, err)
	_, err = unnamed.Admit(second, now)
	require.NoError(t, err, "what an earlier version noted may be this start")
}

// TestElectedAgainAfterATakeOver: a leader that took a host over and lost it to another source
// doesn't take it over once more when it is elected again, until it is restarted or the other
// one has ended.
func TestElectedAgainAfterATakeOver(t *testing.T) {
	leader := func(epoch uint64, start string) *fence.Claim {
		return taking(started(claim(election, epoch, "a"), start))
	}
	note, err := (*fence.Note)(nil).Admit(leader(10, "1"), earlier)
	require.NoError(t, err)
	note, err = note.Admit(taking(claim(other, 1, "b")), earlier)
	require.NoError(t, err)
	for _, epoch := range []uint64{10, 20} {
		_, err = note.Admit(leader(epoch, "1"), now)
		require.ErrorContains(t, err, "refused", epoch)
	}
	_, err = note.Admit(leader(20, "2"), now)
	require.NoError(t, err, "it was restarted with --take-over")
	_, err = note.Release(claim(other, 1, "b")).Admit(leader(20, "1"), now)
	require.NoError(t, err, "the other one has ended")
}

func TestAdmit(t *testing.T) {
	for name, row := range map[string]struct {
		known, claim *fence.Claim
		refused      string
		changed      bool
	}{
		"the first":                           {nil, claim(folder, 1, "a"), "", true},
		"the same again":                      {claim(folder, 7, "a"), claim(folder, 7, "a"), "", false},
		"after a restart":                     {claim(folder, 7, "a"), claim(folder, 8, "a"), "", true},
		"the folder moved to another machine": {claim(folder, 7, "a"), claim(folder, 8, "b"), "", true},
		"replaced":                            {claim(election, 9, "b"), claim(election, 7, "a"), "refused: replaced by \"genv on b\" at 2026-03-01T10:00:00Z", false},
		"replaced by itself":                  {claim(folder, 9, "a"), claim(folder, 8, "a"), "refused: replaced by", false},
		"an equal epoch of another":           {claim(folder, 9, "b"), claim(folder, 9, "a"), "refused: replaced by", false},
		"lower, and taking over":              {claim(folder, 9, "b"), taking(claim(folder, 8, "a")), "refused: replaced by", false},
		"another folder":                      {claim(folder, 1, "a"), claim(other, 9, "b"), "acts on this host, since 2026-03-01T10:00:00Z", false},
		"another folder, taking over":         {claim(folder, 9, "a"), taking(claim(other, 1, "b")), "", true},
		"a folder after an election":          {claim(election, 1, "a"), claim(folder, 9, "a"), "acts on this host", false},
		"an election after a folder":          {claim(folder, 1, "a"), claim(election, 9, "a"), "acts on this host", false},
		"another key of the cluster":          {claim(election, 1, "a"), claim(fence.ElectionSource(0xcdf818194e3a8c32, "/genv/other"), 9, "a"), "acts on this host", false},
		"another cluster":                     {claim(election, 1, "a"), claim(fence.ElectionSource(1, "/genv/lab"), 9, "a"), "acts on this host", false},
		"back, where it never was":            {nil, back(claim(folder, 1, "a")), "", true},
		"back, where another one acts":        {claim(folder, 2, "a"), back(claim(folder, 1, "a")), "refused: replaced by", false},
		"back, where it acts":                 {claim(folder, 2, "a"), back(claim(folder, 2, "a")), "", false},
		"a run":                               {nil, claim(run, 1, "a"), "", false},
		"a run, where another acts":           {claim(folder, 1, "a"), claim(run, 1, "a"), "acts on this host", false},
		"a run, taking over":                  {claim(folder, 1, "a"), taking(claim(run, 1, "a")), "acts on this host", false},
		"without a claim":                     {nil, nil, "", false},
		"without a claim, where a folder is":  {claim(folder, 1, "a"), nil, "", false},
		"without a claim, where one leads":    {claim(election, 1, "a"), nil, "acts on this host", false},
	} {
		t.Run(name, func(t *testing.T) {
			var note *fence.Note
			if row.known != nil {
				note = &fence.Note{Claim: *row.known, Since: earlier}
			}
			next, err := note.Admit(row.claim, now)
			if row.refused != "" {
				var refused *fence.RefusedError
				require.ErrorAs(t, err, &refused)
				require.ErrorContains(t, err, row.refused)
				require.Contains(t, err.Error(), fence.Refused)
			} else {
				require.NoError(t, err)
			}
			if !row.changed {
				require.Same(t, note, next)
				return
			}
			want := *row.claim
			want.TakeOver, want.Back = false, false // it asks once, and isn't part of what is kept
			require.Equal(t, want, next.Claim)
			require.Equal(t, now, next.Since)
			require.False(t, next.Released)
		})
	}
}

// Whatever claims come in which order: an epoch that was admitted once is never followed by a
// lower one of its source, unless another source was taken over between them.
func TestEpochsNeverDecrease(t *testing.T) {
	var note *fence.Note
	for _, epoch := range []uint64{3, 1, 5, 4, 5, 2, 9, 8} {
		before := note
		next, err := note.Admit(claim(election, epoch, "a"), now)
		if before != nil {
			require.GreaterOrEqual(t, next.Epoch, before.Epoch)
			require.Equal(t, epoch < before.Epoch, err != nil)
		}
		note = next
	}
	require.EqualValues(t, 9, note.Epoch)
}

func TestRelease(t *testing.T) {
	note := &fence.Note{Claim: *claim(folder, 7, "a"), Since: earlier}
	for name, c := range map[string]*fence.Claim{
		"another source": claim(other, 7, "a"), "an earlier start": claim(folder, 6, "a"), "another controller": claim(folder, 7, "b"),
	} {
		require.Same(t, note, note.Release(c), name)
	}
	require.Nil(t, (*fence.Note)(nil).Release(claim(folder, 7, "a")))
	released := note.Release(claim(folder, 7, "a"))
	require.True(t, released.Released)
	require.False(t, note.Released)
	for name, row := range map[string]struct {
		claim    *fence.Claim
		admitted bool
	}{
		"another folder":             {claim(other, 1, "b"), true},
		"an election":                {claim(election, 1, "b"), true},
		"a run that keeps nothing":   {claim(run, 1, "b"), true},
		"a restart":                  {claim(folder, 8, "a"), true},
		"an earlier start":           {claim(folder, 6, "a"), false},
		"the one that said it ended": {claim(folder, 7, "a"), false},
	} {
		next, err := released.Admit(row.claim, now)
		require.Equal(t, row.admitted, err == nil, name)
		require.NotNil(t, next, "%s: a note is never forgotten", name)
	}
}

// An election goes on when its leader has ended: no other controller gets its hosts meanwhile.
func TestReleaseOfALeader(t *testing.T) {
	note := &fence.Note{Claim: *claim(election, 7, "a"), Since: earlier}
	released := note.Release(claim(election, 7, "a"))
	require.True(t, released.Released)
	for name, row := range map[string]struct {
		claim    *fence.Claim
		admitted bool
	}{
		"the next leader":          {claim(election, 9, "b"), true},
		"a folder":                 {claim(folder, 1, "c"), false},
		"a folder that takes over": {taking(claim(folder, 1, "c")), true},
		"a run that keeps nothing": {claim(run, 1, "c"), false},
		"an ad hoc run":            {nil, false},
	} {
		_, err := released.Admit(row.claim, now)
		require.Equal(t, row.admitted, err == nil, name)
		if !row.admitted {
			require.EqualError(t, err, `refused: "genv on a" acted on this host, since 2026-03-01T10:00:00Z, and has ended: the host waits for the next leader of its election`, name)
		}
	}
}

// A start that took a host over and was replaced by another source doesn't take it over once
// more: its request was resent, since the answer to the first one was lost.
func TestATakeOverIsResent(t *testing.T) {
	first := taking(claim(folder, 3, "a"))
	note, err := (*fence.Note)(nil).Admit(first, now)
	require.NoError(t, err)
	again, err := note.Admit(first, now)
	require.NoError(t, err)
	require.Same(t, note, again, "nothing happened since")

	note, err = note.Admit(taking(claim(other, 1, "b")), now)
	require.NoError(t, err)
	for name, row := range map[string]struct {
		claim    *fence.Claim
		admitted bool
	}{
		"resent":                  {first, false},
		"an earlier start":        {taking(claim(folder, 2, "a")), false},
		"the folder on a machine": {taking(claim(folder, 3, "c")), false},
		"a later start":           {taking(claim(folder, 4, "a")), true},
		"another one":             {taking(claim(election, 1, "c")), true},
		"the one that acts":       {taking(claim(other, 1, "b")), true},
	} {
		_, err := note.Admit(row.claim, now)
		require.Equal(t, row.admitted, err == nil, "%s: %v", name, err)
	}
	released := note.Release(claim(other, 1, "b"))
	_, err = released.Admit(claim(folder, 3, "a"), now)
	require.NoError(t, err, "the other one has ended, and this one still runs")
	_, err = released.Admit(claim(folder, 2, "a"), now)
	require.Error(t, err)
}

// An elected leader that took a host over and was replaced there by another source doesn't hear of a
// later leader: it would take that for one of its own election, and go on.
func TestALeaderIsReplacedByAnotherSource(t *testing.T) {
	for name, by := range map[string]string{"a folder": folder, "another election": fence.ElectionSource(1, "/genv/other")} {
		leader := taking(claim(election, 7, "a"))
		note, err := (*fence.Note)(nil).Admit(leader, earlier)
		require.NoError(t, err, name)
		note, err = note.Admit(taking(claim(by, 1, "b")), earlier)
		require.NoError(t, err, name)
		kept, err := note.Admit(leader, now)
		require.EqualError(t, err, `refused: "genv on b" acts on this host, since 2026-03-01T10:00:00Z`, name)
		require.Same(t, note, kept, name)
	}
}

// However many sources follow each other, the note stays small.
func TestFormerSourcesAreBounded(t *testing.T) {
	var note *fence.Note
	for i := range 100 {
		c := taking(claim(fence.FolderSource(fmt.Sprint(strings.Repeat("\x00", 500), i)), 1, strings.Repeat("\x00", 100)))
		require.NoError(t, c.Check())
		next, err := note.Admit(c, now)
		require.NoError(t, err)
		note = next
	}
	data, err := json.Marshal(note)
	require.NoError(t, err)
	require.Less(t, len(data), 60<<10)
	require.Len(t, note.Former, 8)
}

// A host that was removed from the list of a controller, and added again.
func TestBack(t *testing.T) {
	note := (&fence.Note{Claim: *claim(folder, 7, "a"), Since: earlier}).Release(claim(folder, 7, "a"))
	for name, c := range map[string]*fence.Claim{
		"an earlier start": claim(folder, 6, "a"), "another controller": claim(folder, 7, "b"),
	} {
		_, err := note.Admit(back(c), now)
		require.Error(t, err, name)
	}
	next, err := note.Admit(back(claim(folder, 7, "a")), now)
	require.NoError(t, err)
	require.Equal(t, &fence.Note{Claim: *claim(folder, 7, "a"), Since: earlier}, next)
}

func TestCheck(t *testing.T) {
	require.NoError(t, claim(folder, 1, "a").Check())
	require.NoError(t, claim(election, 1<<63, "a").Check())
	for name, c := range map[string]*fence.Claim{
		"nothing":            {},
		"no source":          claim("", 1, "a"),
		"an unknown source":  claim("clock:1", 1, "a"),
		"no epoch":           claim(folder, 0, "a"),
		"no controller":      claim(folder, 1, ""),
		"a long source":      claim(fence.FolderSource(strings.Repeat("x", 512)), 1, "a"),
		"a long name":        claim(folder, 1, strings.Repeat("x", 250)),
		"a long id and name": claim(folder, 1, strings.Repeat("x", 256)),
	} {
		require.Error(t, c.Check(), name)
	}
}

func TestANameIsShownSafely(t *testing.T) {
	note := &fence.Note{Claim: fence.Claim{Source: folder, Epoch: 2, Controller: "a", Name: "a\x1b[2J\nb"}, Since: earlier}
	_, err := note.Admit(claim(folder, 1, "b"), now)
	require.NotContains(t, err.Error(), "\x1b")
	require.NotContains(t, err.Error(), "\n")
}
