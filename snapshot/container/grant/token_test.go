package grant_test

import (
	"encoding/json"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-3119e985/genv/snapshot"
	"github.com/seed-3119e985/genv/snapshot/container/grant"
	"github.com/seed-3119e985/genv/snapshot/container/oci"
	"github.com/seed-3119e985/genv/snapshot/state"
)

func TestATokenIsRedeemedOnce(t *testing.T) {
	now := time.Date(2026, 11, 20, 12, 0, 0, 0, time.UTC)
	tokens := &grant.Tokens{Now: func() time.Time { return now }}
	alice, bob := grant.Holder{UID: 1001, EID: "10"}, grant.Holder{UID: 1002}
	issue := func(h grant.Holder) string {
		text, err := tokens.Issue(h)
		require.NoError(t, err)
		require.LessOrEqual(t, len(text), grant.MaxToken)
		return text
	}
	hers, his, late := issue(alice), issue(bob), issue(bob)
	require.NotEqual(t, his, late)
	for _, forged := range []string{"", "x", hers + "x", hers[1:]} {
		_, ok := tokens.Redeem(forged)
		require.False(t, ok, forged)
	}
	got, ok := tokens.Redeem(hers)
	require.True(t, ok)
	require.Equal(t, alice, got)
	_, ok = tokens.Redeem(hers)
	require.False(t, ok, "a replay")
	now = now.Add(grant.TokenLife - time.Second)
	got, ok = tokens.Redeem(his)
	require.True(t, ok)
	require.Equal(t, bob, got)
	now = now.Add(time.Second)
	_, ok = tokens.Redeem(late)
	require.False(t, ok, "it is too old")
	_, err := tokens.Issue(grant.Holder{UID: 1001, EID: "a\nb"})
	require.ErrorIs(t, err, state.ErrRequest)
}

func TestTokensAreBounded(t *testing.T) {
	now := time.Now()
	tokens := &grant.Tokens{Now: func() time.Time { return now }}
	var texts []string
	for range 100 {
		text, err := tokens.Issue(grant.Holder{UID: 1})
		require.NoError(t, err)
		texts = append(texts, text)
	}
	_, ok := tokens.Redeem(texts[0])
	require.False(t, ok, "a user's oldest token gives way")
	_, ok = tokens.Redeem(texts[99])
	require.True(t, ok)
	var err error
	for uid := snapshot.UID(2); uid < 5000 && err == nil; uid++ {
		_, err = tokens.Issue(grant.Holder{UID: uid})
	}
	require.ErrorIs(t, err, state.ErrRequest)
	_, err = tokens.Issue(grant.Holder{UID: 1})
	require.NoError(t, err, "who has one can have others")
	now = now.Add(grant.TokenLife)
	_, err = tokens.Issue(grant.Holder{UID: 9999})
	require.NoError(t, err, "the others are too old")
}

func TestOneOfManyRedeems(t *testing.T) {
	tokens := &grant.Tokens{}
	text, err := tokens.Issue(grant.Holder{UID: 1})
	require.NoError(t, err)
	var redeemed atomic.Int32
	var all sync.WaitGroup
	for range 50 {
		all.Go(func() {
			if _, ok := tokens.Redeem(text); ok {
				redeemed.Add(1)
			}
		})
	}
	all.Wait()
	require.EqualValues(t, 1, redeemed.Load())
}

// FuzzAsked: what a container's variables and annotations ask for is a request that root's
// service accepts too, or an error, which only a container that asks for GPUs has.
func FuzzAsked(f *testing.F) {
	f.Add("all", "2", "4g", "web", "cdi.k8s.io/x", "nvidia.com/gpu=0")
	f.Add("0,GPU-1", "all", "-1", "a\nb", "other", "nvidia.com/gpu=all")
	f.Add("void", "65536", "0", "", "cdi.k8s.io/", ",nvidia.com/gpu=,,")
	f.Fuzz(func(t *testing.T, visible, count, memory, name, key, value string) {
		data, err := json.Marshal(map[string]any{
			"process": map[string]any{"env": []string{
				"NVIDIA_VISIBLE_DEVICES=" + visible, grant.GPUs + "=" + count, grant.GPUMemory + "=" + memory, grant.Name + "=" + name,
			}},
			"annotations": map[string]string{key: value},
		})
		require.NoError(t, err)
		c, err := oci.Parse(data)
		require.NoError(t, err)
		for _, nvidia := range []bool{false, true} {
			r, err := grant.Asked(c, nvidia)
			if err != nil {
				require.ErrorIs(t, err, grant.ErrRequest)
				continue
			}
			require.NoError(t, r.Check())
			require.NotContains(t, r.Names, "")
			require.NotContains(t, r.Names, "all")
			if count == "2" {
				require.Equal(t, 2, r.Count)
			}
		}
	})
}

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
