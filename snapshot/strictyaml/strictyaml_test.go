package strictyaml_test

import (
	"encoding/json"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-3119e985/genv/snapshot/strictyaml"
)

// values is one key of every type.
type values struct {
	text, scalar, choice string
	flag                 bool
	count                int
	wait                 time.Duration
	list                 []string
	byName               map[string]string
	order                []string
	place                strictyaml.Place
}

func read(data string) (values, *strictyaml.Document) {
	v := values{byName: map[string]string{}}
	doc := strictyaml.Parse("f.yaml", []byte(data))
	doc.Root().Map(strictyaml.Keys{
		"text":   func(n *strictyaml.Node) { v.text, v.place = n.Text(), n.Place() },
		"scalar": func(n *strictyaml.Node) { v.scalar = n.Scalar() },
		"choice": func(n *strictyaml.Node) { v.choice = n.OneOf("ignore", "hold") },
		"flag":   func(n *strictyaml.Node) { v.flag = n.Bool() },
		"count":  func(n *strictyaml.Node) { v.count = n.Int(-5, 100) },
		"wait":   func(n *strictyaml.Node) { v.wait = n.Duration(0, 30*24*time.Hour) },
		"list":   func(n *strictyaml.Node) { n.List(func(n *strictyaml.Node) { v.list = append(v.list, n.Text()) }) },
		"names": func(n *strictyaml.Node) {
			n.Each(func(key, value *strictyaml.Node) {
				v.byName[key.Text()] = value.Scalar()
				v.order = append(v.order, key.Text())
			})
		},
	})
	return v, doc
}

func TestValues(t *testing.T) {
	v, doc := read("\uFEFF# c\r\ntext: 'a: b'\r\nscalar: 0x1F\nchoice: hold\nflag: true\ncount: 010\n" +
		"wait: 1h30m\nlist:\n  - gpu-[01-02]\n  - \"@lab\"\nnames: {z: 1, a: true, 5: \"\"}\n")
	require.NoError(t, doc.Err())
	require.NoError(t, doc.All())
	require.Equal(t, values{
		text: "a: b", scalar: "0x1F", choice: "hold", flag: true, count: 10, wait: 90 * time.Minute,
		list: []string{"gpu-[01-02]", "@lab"}, byName: map[string]string{"z": "1", "a": "true", "5": ""}, order: []string{"z", "a", "5"},
		place: strictyaml.Place{File: "f.yaml", Line: 2, Column: 7},
	}, v)
}

func TestErrors(t *testing.T) {
	const quotes = `; put quotes around words with special characters, as in "@group" or ["gpu-[01-04]"]`
	tests := []struct{ name, data, want string }{
		{"empty", "", "f.yaml:1:1: the file is empty or contains only comments; write its keys"},
		{"comments only", "# a\n", `f.yaml:1:1: the file is empty or contains only comments; write its keys (in "# a")`},
		{"unknown key", "txet: a", `f.yaml:1:1: unknown key "txet"; did you mean "text"? (in "txet: a")`},
		{"far from all", "zzzzzz: a", `f.yaml:1:1: unknown key "zzzzzz"; use one of choice, count, flag, list, names, scalar, text, wait (in "zzzzzz: a")`},
		{"number for text", "text: 22", `f.yaml:1:7: text: expected text, but found a number "22"; put it in quotes (in "text: 22")`},
		{"bool for text", "text: false", `f.yaml:1:7: text: expected text, but found false; put it in quotes (in "text: false")`},
		{"empty text", `text: ""`, `f.yaml:1:7: text: the text is empty; write it, or remove the line (in "text: \"\"")`},
		{"no text", "text: ~", "f.yaml:1:1: text: expected text, as in `word`, but found nothing (in \"text: ~\")"},
		{"yes", "flag: yes", "f.yaml:1:7: flag: expected true or false, as in `true`, but found text \"yes\" (in \"flag: yes\")"},
		{"a misspelt choice", "choice: holt", `f.yaml:1:9: choice: unknown value "holt"; did you mean "hold"? (in "choice: holt")`},
		{"no choice", "choice: maybe", `f.yaml:1:9: choice: unknown value "maybe"; use one of ignore, hold (in "choice: maybe")`},
		{"too high", "count: 101", `f.yaml:1:8: count: 101 is not a whole number from -5 to 100 (in "count: 101")`},
		{"too low", "count: -6", `f.yaml:1:8: count: -6 is not a whole number from -5 to 100 (in "count: -6")`},
		{"hexadecimal", "count: 0x10", `f.yaml:1:8: count: 0x10 is not a whole number from -5 to 100 (in "count: 0x10")`},
		{"infinity", "count: .inf", `f.yaml:1:8: count: .inf is not a whole number from -5 to 100 (in "count: .inf")`},
		{"too long without a unit", "wait: 2592001", `f.yaml:1:7: wait: 2592001 is not from 0s to 30d (in "wait: 2592001")`},
		{"hexadecimal seconds", "wait: 0x10", `f.yaml:1:7: wait: "0x10" is not a duration; write it as 10s, 500ms, 15m, 1h30m or 7d (in "wait: 0x10")`},
		{"infinite seconds", "wait: .inf", `f.yaml:1:7: wait: ".inf" is not a duration; write it as 10s, 500ms, 15m, 1h30m or 7d (in "wait: .inf")`},
		{"no duration", "wait: soon", `f.yaml:1:7: wait: "soon" is not a duration; write it as 10s, 500ms, 15m, 1h30m or 7d (in "wait: soon")`},
		{"negative", "wait: -1s", `f.yaml:1:7: wait: "-1s" is not a duration; write it as 10s, 500ms, 15m, 1h30m or 7d (in "wait: -1s")`},
		{"too long", "wait: 31d", `f.yaml:1:7: wait: 31d is not from 0s to 30d (in "wait: 31d")`},
		{"days of what", "wait: 1.5d", `f.yaml:1:7: wait: "1.5d" is not a duration; write it as 10s, 500ms, 15m, 1h30m or 7d (in "wait: 1.5d")`},
		{"days backwards", "wait: 2d-1h", `f.yaml:1:7: wait: "2d-1h" is not a duration; write it as 10s, 500ms, 15m, 1h30m or 7d (in "wait: 2d-1h")`},
		{"list for duration", "wait: [1s]", "f.yaml:1:7: wait: expected text, as in `10s`, but found a list (in \"wait: [1s]\")"},
		{"list for text", "text: [a]", "f.yaml:1:7: text: expected text, as in `word`, but found a list (in \"text: [a]\")"},
		{"text for list", "list: a", "f.yaml:1:7: list: expected a list, as in `- item`, but found text \"a\" (in \"list: a\")"},
		{"list for mapping", "names: [a]", "f.yaml:1:8: names: expected a mapping, as in `name: value`, but found a list (in \"names: [a]\")"},
		{"twice", "text: a\ntext: b", `f.yaml:2:1: mapping key "text" already defined at [1:1] (in "text: b")`},
		{"anchor", "text: &x a", `f.yaml:1:7: anchors, aliases and tags are not supported; write the value itself (in "text: &x a")`},
		{"tag", "text: !!str a", `f.yaml:1:7: anchors, aliases and tags are not supported; write the value itself (in "text: !!str a")`},
		{"merge", "<<: {text: a}", `f.yaml:1:1: a key must be a single word; merge keys, lists and mappings are not supported as keys (in "<<: {text: a}")`},
		{"complex key", "? [a]\n: b", `f.yaml:2:1: found an invalid key for this map (in ": b")`},
		{"block text", "text: |\n  a\n  b\n", `f.yaml:1:7: text over several lines is not supported; write it after the key, in quotes if necessary (in "text: |")`},
		{"control character", `text: "a\x1b[1m"`, `f.yaml:1:7: the text contains a line break or another control character; remove it (in "text: \"a\\x1b[1m\"")`},
		{"two documents", "text: a\n---\ntext: b\n", `f.yaml:3:1: a second document begins here, but a file may contain only one; remove the --- before it (in "text: b")`},
		{"reserved", "list:\n  - @lab", `f.yaml:2:5: '@' is a reserved character` + quotes + ` (in "- @lab")`},
		{"not UTF-8", "text: a\nscalar: \xff", "f.yaml:2:1: the line is not UTF-8; save the file as UTF-8 (in \"scalar: \\xff\")"},
		{"deep", "list: " + strings.Repeat("[", 1<<20), `f.yaml:1:1: values are nested deeper than 64 levels; close the brackets, or use fewer levels (in "list: ` + strings.Repeat("[", 54) + `…")`},
		{"deep by indentation", "list:\n" + strings.Repeat(" ", 130) + "- a", "f.yaml:2:1: values are nested deeper than 64 levels; close the brackets, or use fewer levels (in \"- a\")"},
		{"deep lists", strings.Repeat("- ", 1<<20) + "a", `f.yaml:1:1: values are nested deeper than 64 levels; close the brackets, or use fewer levels (in "` + strings.Repeat("- ", 30) + `…")`},
		{"a long key", strings.Repeat("k", 1000) + ": 1", `f.yaml:1:1: unknown key "` + strings.Repeat("k", 387) + `… (in "` + strings.Repeat("k", 60) + `…")`},
		{"huge", "# " + strings.Repeat("a", strictyaml.MaxSize), `f.yaml:1:1: the file has 4194306 bytes, more than the maximum of 4194304; split it`},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			_, doc := read(test.data)
			require.EqualError(t, doc.Err(), test.want)
			var e *strictyaml.ParseError
			require.ErrorAs(t, doc.Err(), &e)
			require.Equal(t, "f.yaml", e.Place.File)
		})
	}
}

func TestAllErrorsOfAFile(t *testing.T) {
	_, doc := read("wait: soon\ncount: a\nflag: 3\n")
	require.EqualError(t, doc.All(), "f.yaml:1:7: wait: \"soon\" is not a duration; write it as 10s, 500ms, 15m, 1h30m or 7d (in \"wait: soon\")\n"+
		"f.yaml:2:8: count: expected a number, as in `0`, but found text \"a\" (in \"count: a\")\n"+
		"f.yaml:3:7: flag: expected true or false, as in `true`, but found a number \"3\" (in \"flag: 3\")")

	_, doc = read("list:\n" + strings.Repeat("  - 1\n", 1000))
	require.Equal(t, 20, strings.Count(doc.All().Error(), "quotes"), "the rest tends to follow from the first")
}

// The first error by its place is what an editor jumps to, whatever the order in which the reader asked.
func TestErrIsTheFirstInTheFile(t *testing.T) {
	doc := strictyaml.Parse("f.yaml", []byte("a: 1\nb: 2\n"))
	var nodes []*strictyaml.Node
	doc.Root().Each(func(_, value *strictyaml.Node) { nodes = append(nodes, value) })
	nodes[1].Failf("second")
	nodes[0].Failf("first")
	require.EqualError(t, doc.Err(), `f.yaml:1:4: first (in "a: 1")`)
}

func TestCommentsNestNothing(t *testing.T) {
	v, doc := read("text: a # " + strings.Repeat("[", 100) + "\n" + strings.Repeat(" ", 200) + "# far to the right\n" +
		"# - - - " + strings.Repeat("{", 100) + "\n" + strings.Repeat(" ", 200) + "\nchoice: hold\n")
	require.NoError(t, doc.Err())
	require.Equal(t, "a", v.text)
	require.Equal(t, "hold", v.choice)
}

func TestDurations(t *testing.T) {
	for text, want := range map[string]time.Duration{
		"0": 0, "0s": 0, "10": 10 * time.Second, "0.5": time.Second / 2, `"10"`: 10 * time.Second, "10s": 10 * time.Second, "1h30m": 90 * time.Minute, "500ms": 500 * time.Millisecond, "2h": 2 * time.Hour,
		"7d": 168 * time.Hour, "1d12h": 36 * time.Hour, "1d1s": 24*time.Hour + time.Second,
	} {
		v, doc := read("wait: " + text)
		require.NoError(t, doc.Err(), text)
		require.Equal(t, want, v.wait, text)
	}
}

func TestGroups(t *testing.T) {
	read := func(data string) (map[string][]string, error) {
		doc := strictyaml.Parse("f.yaml", []byte(data))
		groups := strictyaml.GroupReader{
			Members: func(item *strictyaml.Node) []string { return []string{item.Text()} },
			Other: func(name string) ([]string, error) {
				if name == "others" {
					return []string{"o1", "o2"}, nil
				}
				return nil, errors.New("no such group; name another")
			},
			Fold: strings.ToLower,
		}.Read(doc.Root())
		return groups, doc.Err()
	}
	groups, err := read("a: [\"@b\", z, Y]\nb: [x, y]\nc: [\"@others\", o1]\nd: []\n")
	require.NoError(t, err)
	require.Equal(t, map[string][]string{"a": {"x", "y", "z"}, "b": {"x", "y"}, "c": {"o1", "o2"}, "d": nil}, groups)

	for data, want := range map[string]string{
		"a: [\"@b\"]\nb: [\"@a\"]": "f.yaml:2:5: group a contains itself: a > b > a; remove one of these",
		"a: [\"@c\"]":              "f.yaml:1:5: @c: no such group; name another",
		"a b: [x]":                 "f.yaml:1:1: \"a b\" is not a valid group name; use letters, digits, '-', '_' and '.'",
		"\"@\": [x]":               "f.yaml:1:1: \"\" is not a valid group name; use letters, digits, '-', '_' and '.'",
		"\"@a\": [x]\na: [y]":      "f.yaml:2:1: group a is defined twice; remove one of the definitions",
		"a: [[x]]":                 "f.yaml:1:5: expected text, as in `word`, but found a list",
		"a: x":                     "f.yaml:1:4: a: expected a list, as in `- item`, but found text \"x\"",
	} {
		_, err := read(data)
		require.ErrorContains(t, err, want)
	}
}

// FuzzParse: any bytes give a tree that can be read whole, or an error that has one line and a place within the file.
func FuzzParse(f *testing.F) {
	for _, seed := range []string{
		"text: a", "list: [a, {b: c}]", "names:\n  a: 1\n  - b\n", "? a\n: b", "a: &x 1\nb: *x", "<<: *x", "---\n---\n", "- - - a",
		"text: \"\\u0000\"", "%YAML 1.2\n---\na: 1", "a: |\n b\n", "{a: {b: [", "\xef\xbb\xbf", "a:\r\n\tb", "\r0", "a: !!binary x", "'", "\"", ": :", "[,]", "{,}",
	} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, data string) {
		_, doc := read(data)
		err := doc.Err()
		if err == nil {
			return
		}
		require.NotContains(t, err.Error(), "\n")
		var e *strictyaml.ParseError
		require.ErrorAs(t, err, &e)
		require.Positive(t, e.Place.Line)
		require.Positive(t, e.Place.Column)
		require.LessOrEqual(t, e.Place.Line, strings.Count(data, "\n")+strings.Count(data, "\r")+1)
	})
}

// TestDescribe: a schema has what a function reads, in whatever order it reads it.
func TestDescribe(t *testing.T) {
	var later *strictyaml.Node
	schema := strictyaml.Describe(func(doc *strictyaml.Document) {
		doc.Root().Map(strictyaml.Keys{
			"later": func(n *strictyaml.Node) { later = n },
			"refused": func(n *strictyaml.Node) {
				n.Failf("write it elsewhere")
			},
			"word": func(n *strictyaml.Node) { n.OneOf("a", "b") },
		}, strictyaml.Keys{"old": func(*strictyaml.Node) {}})
		later.List(func(n *strictyaml.Node) {
			if !n.IsMap() {
				n.Int(1, 3)
				return
			}
			n.Each(func(_, value *strictyaml.Node) { value.Bool() })
		})
		require.NoError(t, doc.Err())
	})
	data, err := json.Marshal(schema)
	require.NoError(t, err)
	require.JSONEq(t, `{"$schema": "http://json-schema.org/draft-07/schema#", "type": "object", "additionalProperties": false,
		"properties": {
			"later": {"type": "array", "items": {"type": ["integer", "object"], "minimum": 1, "maximum": 3, "additionalProperties": {"type": "boolean"}}},
			"old": {"deprecationMessage": "genv ignores this key; `+"`genv policy check`"+` says what to use instead"},
			"word": {"enum": ["a", "b"]}}}`, string(data))
}
