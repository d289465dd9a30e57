package fence_test

import (
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
		"a run":                               {nil, claim(run, 1, "a"), "", false},
		"a run, where another acts":           {claim(folder, 1, "a"), claim(run, 1, "a"), "acts on this host", false},
		"a run, taking over":                  {claim(folder, 1, "a"), taking(claim(run, 1, "a")), "acts on this host", false},
		"without a claim":                     {nil, nil, "", false},
		"without a claim, where a folder is":  {claim(folder, 1, "a"), nil, "", false},
		"without a claim, where one leads":    {claim(election, 1, "a"), nil, "refused: replaced by", false},
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
			want.TakeOver = false // it asks once, and isn't part of what is kept
			require.Equal(t, &fence.Note{Claim: want, Since: now}, next)
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
