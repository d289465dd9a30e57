package enforcement

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-3119e985/genv/enforce"
	enforcepolicy "github.com/seed-3119e985/genv/enforce/policy"
	"github.com/seed-3119e985/genv/remote/controller"
	"github.com/seed-3119e985/genv/snapshot"
	hostservice "github.com/seed-3119e985/genv/snapshot/state/service"
)

// TestAllowance: what hosts are told that the policy allows is what the caps count by.
func TestAllowance(t *testing.T) {
	night := time.Date(2026, 11, 20, 23, 0, 0, 0, time.UTC)
	exempt := func(w enforcepolicy.Who) enforcepolicy.Exemption {
		return enforcepolicy.Exemption{Who: w, Reason: "r", By: "b", Created: night.Add(-time.Hour), Until: night.Add(time.Hour)}
	}
	one, two, four := 1, 2, 4
	type users = map[snapshot.Username]*int
	for name, row := range map[string]struct {
		policy     string
		exemptions []enforcepolicy.Exemption
		gpus       *int
		users      users
	}{
		"no cap":             {"{}", nil, nil, nil},
		"one for all":        {"defaults: {max-devices-per-user: 2}", nil, &two, nil},
		"only for some":      {"overrides: [{users: [bob], set: {max-devices-per-user: 1}}]", nil, nil, users{"bob": &one}},
		"a user and a group": {"defaults: {max-devices-per-user: 2}\ngroups: {lab: [eve, bob]}\noverrides: [{users: [\"@lab\"], set: {max-devices-per-user: 4}}, {users: [bob], set: {max-devices-per-user: 1}}]", nil, &two, users{"bob": &one, "eve": &four}},
		"named for something else, and the same": {
			"defaults: {max-devices-per-user: 2}\noverrides: [{users: [bob], set: {max-envs-per-user: 4}}, {users: [eve], set: {max-devices-per-user: 2}}]", nil, &two, nil,
		},
		"no cap for one": {"defaults: {max-devices-per-user: 2}\noverrides: [{users: [bob], set: {max-devices-per-user: false}}]", nil, &two, users{"bob": nil}},
		"exempt users": {
			"defaults: {max-devices-per-user: 2}\nexempt: {users: [bob]}",
			[]enforcepolicy.Exemption{exempt(enforcepolicy.Who{User: "eve"}), exempt(enforcepolicy.Who{User: "dan", Rule: "max-devices-per-user"})},
			&two,
			users{"bob": nil, "eve": nil, "dan": nil},
		},
		"exempt from another rule, and a host": {
			"defaults: {max-devices-per-user: 2}",
			[]enforcepolicy.Exemption{exempt(enforcepolicy.Who{User: "eve", Rule: enforce.RuleIdle}), exempt(enforcepolicy.Who{Host: "a"})},
			&two, nil,
		},
		"at this time": {
			"defaults: {max-devices-per-user: 2}\ntimezone: UTC\nschedules: {night: [{hours: 20:00-08:00}], day: [{hours: 08:00-20:00}]}\noverrides: [{when: night, set: {max-devices-per-user: 4}}, {when: day, users: [bob], set: {max-devices-per-user: 1}}]",
			nil, &four, nil,
		},
	} {
		t.Run(name, func(t *testing.T) {
			file, err := enforcepolicy.Parse("policy.yaml", []byte(row.policy))
			require.NoError(t, err)
			var told []*hostservice.Allowance
			sink := newAllowanceSink(&Options{Policy: file, Interval: 30 * time.Second, Allow: func(a *hostservice.Allowance) { told = append(told, a) }})
			cycle := controller.Cycle{Start: night, Exemptions: row.exemptions}
			for _, c := range []controller.Cycle{{Start: night}, {Start: night, Stopped: true, Ended: true}} {
				sink.Consume(&c, nil)
				require.Empty(t, told, "it has not ended, or was stopped")
			}
			sink.Consume(cycle.AtEnd(), nil)
			sink.Consume(cycle.AtEnd(), nil)
			want := &hostservice.Allowance{GPUs: row.gpus, Users: row.users, ForMS: 90000}
			require.Equal(t, []*hostservice.Allowance{want, want}, told)
			require.Same(t, told[0], told[1], "a connection sends the same bytes then")
		})
	}
	file, err := enforcepolicy.Parse("policy.yaml", []byte("{}"))
	require.NoError(t, err)
	require.True(t, newAllowanceSink(&Options{Policy: file, LocalName: "here"}).always.OneHost)

	own := enforcepolicy.Settings{Settings: enforce.Settings{MaxDevices: &one}} // --max-devices-for-user
	own.Set("max-devices-per-user", enforcepolicy.Source{})
	file.UserFlags, file.Accounts = map[snapshot.Username]enforcepolicy.Settings{"bob": own}, enforcepolicy.Aliases{"robert": "bob", "evelyn": "eve"}
	told := newAllowanceSink(&Options{Policy: file}).at(&controller.Cycle{Start: night})
	require.Equal(t, users{"bob": &one, "robert": &one}, told.Users, "by all names of the account")
}
