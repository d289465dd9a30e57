package election_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-3119e985/genv/remote/election"
)

func TestRole(t *testing.T) {
	const s = time.Second
	won := election.State{}.Won(7, 12, 100*s, 5*s)
	for name, row := range map[string]struct {
		state election.State
		at    time.Duration
		want  election.Role
		left  time.Duration
	}{
		"never led":                       {election.State{}, 0, election.Standby, 0},
		"won":                             {won, 100 * s, election.Leading, 5 * s},
		"until the lease may end":         {won, 105*s - 1, election.Leading, 1},
		"the lease may have ended":        {won, 105 * s, election.Expired, 0},
		"stopped for an hour":             {won, time.Hour, election.Expired, 0},
		"renewed":                         {won.Renewed(7, 101*s, 5*s, 101*s), 105 * s, election.Leading, s},
		"counted from when it was sent":   {won.Renewed(7, 101*s, 5*s, 104*s), 106 * s, election.Expired, 0},
		"an answer that comes too late":   {won.Renewed(7, 104*s, 5*s, 105*s), 105 * s, election.Expired, 0},
		"the answers in another order":    {won.Renewed(7, 103*s, 5*s, 104*s).Renewed(7, 101*s, 5*s, 104*s), 107 * s, election.Leading, s},
		"a lease of another term":         {won.Renewed(6, 104*s, 5*s, 104*s), 105 * s, election.Expired, 0},
		"a longer lease than asked for":   {won.Renewed(7, 101*s, 9*s, 101*s), 109 * s, election.Leading, s},
		"a shorter one":                   {won.Renewed(7, 101*s, 2*s, 101*s), 104 * s, election.Leading, s},
		"renewed as a standby":            {election.State{}.Renewed(7, 101*s, 5*s, 101*s), 101 * s, election.Standby, 0},
		"the key is gone":                 {won.Lost(), 101 * s, election.Standby, 0},
		"it is gone, and an answer comes": {won.Lost().Renewed(7, 101*s, 5*s, 101*s), 101 * s, election.Standby, 0},
		"led again":                       {won.Lost().Won(8, 13, 200*s, 5*s), 201 * s, election.Leading, 4 * s},
	} {
		require.Equal(t, row.want, row.state.Role(row.at), name)
		require.Equal(t, row.left, row.state.Left(row.at), name)
	}
}
