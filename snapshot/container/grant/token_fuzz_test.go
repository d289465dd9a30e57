package grant_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/seed-3119e985/genv/snapshot/container/grant"
)

// FuzzRedeem: a text that was not issued is of no user, and costs no user a token.
func FuzzRedeem(f *testing.F) {
	for _, seed := range []string{"", "x", "AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA", "\x00\n"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, forged string) {
		var tokens grant.Tokens
		alice := grant.Holder{UID: 1001, EID: "10"}
		issued, err := tokens.Issue(alice)
		require.NoError(t, err)
		for _, text := range []string{forged, forged + issued, issued + forged} {
			if text == issued {
				continue
			}
			h, ok := tokens.Redeem(text)
			require.False(t, ok)
			require.Zero(t, h)
		}
		h, ok := tokens.Redeem(issued)
		require.True(t, ok)
		require.Equal(t, alice, h)
	})
}
