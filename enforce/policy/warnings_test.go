package policy_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/seed-3119e985/genv/enforce"
	"github.com/seed-3119e985/genv/enforce/policy"
	"github.com/seed-3119e985/genv/snapshot"
)

// warned are the warnings of a kind, or of a name, with these GPUs by host and model.
func warned(file *policy.File, of string, gpus map[string]map[string]int) []policy.Warning {
	list := file.Warnings(func(yield func(enforce.Query, map[string]int) bool) {
		for host, byModel := range gpus {
			if !yield(enforce.Query{Host: snapshot.Hostname(host)}, byModel) {
				return
			}
		}
	})
	return slices.DeleteFunc(list, func(w policy.Warning) bool { return w.Kind != of && w.Name != of })
}

// Caps that can never take anything are warned of, and no others are.
func TestCapWarnings(t *testing.T) {
	const head = `schedules: {day: [{hours: 8-18}], none: [{days: sat, from: 2026-12-21, to: 2026-12-22}]}
groups: {empty: [], staff: [ann]}
exempt: {users: [ann]}
caps: [`
	for caps, want := range map[string]string{
		`{gpus: 100%}`:                                                        "100% are all GPUs",
		`{gpus: -0, together: true}`:                                          "-0 leaves out none",
		`{gpus: 1, users: ["@empty"]}`:                                        "its groups have no members",
		`{gpus: 1, users: ["@staff"]}`:                                        "its users are exempt",
		`{gpus: {"@empty": 1}}`:                                               "its groups have no members",
		`{gpus: {ann: 1}}`:                                                    "its users are exempt",
		`{gpus: 1, while: {waiting: ["@empty"]}}`:                             "its groups have no members",
		`{gpus: 1, users: ["!*"]}`:                                            `all that it names is left out by "!"`,
		`{gpus: 1, users: ["%chem", "!%chem"]}`:                               `all that it names is left out by "!"`,
		`{gpus: 1, of: {hosts: ["a", "!a"]}}`:                                 `all that it names is left out by "!"`,
		`{gpus: 1, when: none}`:                                               "schedule none has no hours",
		`{gpus: 1, when: day, warn: 1d}`:                                      "its warning takes 1d, and schedule day lasts for 10h at most",
		`{gpus: 4}, {gpus: 6}`:                                                "the one at p.yaml:4:9 allows no more",
		`{gpus: 6}, {gpus: 4}`:                                                "the one at p.yaml:4:20 allows no more",
		`{gpus: 2, together: true}, {gpus: 2, users: [bob]}`:                  "the one at p.yaml:4:9 allows no more",
		`{gpus: 4}, {gpus: 4, of: {model: "A100*"}}`:                          "the one at p.yaml:4:9 allows no more",
		`{gpus: 4}, {gpus: 4, per: host}`:                                     "the one at p.yaml:4:9 allows no more",
		`{gpus: 4}, {name: b, gpus: 4}`:                                       "p.yaml:4:9 allows no more",
		`{gpu-hours: 4, every: week}, {gpu-hours: 5, every: week, when: day}`: "allows no more",

		`{gpus: 6, users: ["%chem", bob, "!bob"], of: {hosts: ["*", "!a"]}}`: "",
		`{gpus: 6}, {gpus: 2, when: day}`:                                    "",
		`{gpus: 2, when: day, warn: 9h}`:                                     "",
		`{gpus: 2, when: day}, {gpus: 2, users: [bob]}`:                      "",
		`{gpus: 4, warn: 1d}, {gpus: 6}`:                                     "",
		`{gpus: 4, per: host}, {gpus: 6}`:                                    "",
		`{gpus: 4}, {gpus: 6, together: true}`:                               "",
		`{gpus: 4, of: {model: "A100*"}}, {gpus: 6}`:                         "",
		`{gpus: 4, users: [bob]}, {gpus: 6, users: [dora]}`:                  "",
		`{gpus: 2, while: {waiting: anybody}}, {gpus: 6, warn: 30m}`:         "",
		`{gpus: 50%, of: {model: "A*"}}, {gpus: 75%}`:                        "",
		`{gpus: 50%}, {gpus: 75%, of: {model: "A*"}}`:                        "",
		`{gpus: -1}, {gpus: 50%}, {gpus: 1, users: ["%empty", "@empty"]}`:    "",
		`{gpu-hours: 4, every: week}, {gpu-hours: 5, every: month}`:          "",
		`{gpus: {"*": 1, ann: 9}}`:                                           "",
		`{gpus: {"*": 1, bob: 9}}, {gpus: 5, users: [bob], together: true}`:  "",
	} {
		var said []string
		for _, w := range warned(parse(t, head+caps+"]"), "cap", nil) {
			said = append(said, w.Message)
		}
		if want == "" {
			require.Empty(t, said, caps)
			continue
		}
		require.Len(t, said, 1, caps)
		require.Contains(t, said[0], want, caps)
	}
}

func TestCapsThatTakeAll(t *testing.T) {
	file := parse(t, `caps: [{gpus: -2, per: host, of: {model: "A100*"}}, {gpus: -2, name: together}]`)
	said := warned(file, "cap", map[string]map[string]int{"a": {"A100": 8}, "b": nil, "c": {"A100": 2, "V100": 6}})
	require.Len(t, said, 1)
	require.Equal(t, "on c nothing may be taken: it has 2 GPUs", said[0].Message)
	require.Equal(t, file.CapList[0].ID, said[0].Name)
}

// A policy with caps or idle that sees only people who use environments is told so.
func TestWhoDoesNotCount(t *testing.T) {
	for text, counts := range map[string]bool{
		"caps: [{gpus: 1}]": false, "defaults: {idle: {after: 1h}}": false,
		"overrides: [{hosts: [a], set: {idle: {after: 1h}}}]": false, "defaults: {idle: false}": true,
		"defaults: {non-env-processes: count}\ncaps: [{gpus: 1}]":                      true,
		"caps: [{gpus: 1}]\noverrides: [{hosts: [a], set: {non-env-processes: true}}]": true, "defaults: {grace: 10s}": true,
	} {
		require.Equal(t, counts, len(warned(parse(t, text), "non-env-processes", nil)) == 0, text)
	}
}

func TestWarningsThatAreShort(t *testing.T) {
	for text, want := range map[string]int{
		"defaults: {warn: {for: 30s}}":                           1,
		"defaults: {warn: {for: 2m}}":                            0,
		"defaults: {warn: false}":                                0,
		"defaults: {warn: {cycles: 3}}":                          0,
		"defaults: {warn: {for: 10m, rules: {env-memory: 10s}}}": 1,
		"defaults: {idle: {after: 1h, warn: 59s}}":               1,
		"caps: [{gpus: 1, warn: 5s}]":                            1,
		"overrides: [{hosts: [a], set: {warn: {for: 1s}}}]":      1,
	} {
		mail := "\nmail: {sendmail: /x, from: a@x.example, template: '{{.User}}@x.example', timeout: 20s}\n"
		said := warned(parse(t, text+mail), "warn", nil)
		said = slices.DeleteFunc(said, func(w policy.Warning) bool { return !strings.Contains(w.Message, "before its mail arrives") })
		require.Len(t, said, want, text)
	}
}

// TestActsAtOnce: what people are not told of before is named where it is written, unless the file says that they aren't.
func TestActsAtOnce(t *testing.T) {
	for text, line := range map[string]int{
		"defaults: {env-memory: true}\ncaps: [{gpus: 2}]": 1, "overrides:\n  - hosts: [a]\n    set:\n      idle: {after: 1h}": 4,
		"caps:\n  - {gpus: 3, warn: 1h}\n  - {gpus: 2}": 3, "defaults: {warn: 1h}\ncaps: [{gpus: 2}]": 0, "defaults: {warn: false}\ncaps: [{gpus: 2}]": 0,
		"defaults: {non-env-processes: count, env-devices: false, idle: {after: 1h, warn: false}}": 0, "contact: me": 0,
	} {
		file := parse(t, text)
		at := 0
		for _, w := range warned(file, "warn", nil) {
			at = w.Place.Line
		}
		require.Equal(t, line, at, text)
	}
}
