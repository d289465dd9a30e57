package policy_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/seed-3119e985/genv/enforce"
	"github.com/seed-3119e985/genv/enforce/policy"
)

// Keys of an earlier version don't stop enforcement: they are named, whatever their value, and the
// rest of the file applies.
func TestIgnoredKeys(t *testing.T) {
	const instead = " is ignored, and the next version refuses it: remove it, and use overrides with a schedule, or genv remote exempt --for"
	type ignored struct{ key, place string }
	for _, row := range []struct {
		text string
		want []ignored
	}{
		{"defaults: {max-devices-per-user: 1}\n", nil},
		{"defaults: {max-devices-per-user: 1, extend: 1d}\n", []ignored{{"extend", "p.yaml:1:45"}}},
		{"defaults: {max-devices-per-user: 1, extend: [x]}\n", []ignored{{"extend", "p.yaml:1:45"}}},
		{"defaults: {max-devices-per-user: 1}\nfair-share: {boost: 2, free: 25%}\n", []ignored{{"fair-share", "p.yaml:2:14"}}},
		{"defaults: {max-devices-per-user: 1}\nfair-share: false\noverrides: [{users: [eve], set: {extend: 2h}}]\n", []ignored{{"extend", "p.yaml:3:42"}, {"fair-share", "p.yaml:2:13"}}},
	} {
		require.NoError(t, policy.Check("p.yaml", []byte(row.text)), row.text)
		file := parse(t, row.text)
		var got []ignored
		for _, i := range file.Ignored {
			require.Equal(t, i.Key+instead, i.Message)
			got = append(got, ignored{i.Key, i.Place.String()})
		}
		require.Equal(t, row.want, got, row.text)
		require.Equal(t, 1, *file.Settings(enforce.Query{User: "eve"}).MaxDevices)
		require.Equal(t, parse(t, "defaults: {max-devices-per-user: 1}\n").Settings(enforce.Query{User: "bob"}), file.Settings(enforce.Query{User: "bob"}))
	}
}
