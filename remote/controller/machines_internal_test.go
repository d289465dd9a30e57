package controller

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/seed-3119e985/genv/remote"
)

// leadOf reads "token shown,shown address key", with - for what isn't known.
func leadOf(text string) lead {
	if text == "down" {
		return lead{}
	}
	words := strings.Fields(text + " - - - -")
	for i, w := range words {
		words[i] = strings.TrimPrefix(w, "-")
	}
	l := lead{answered: true, token: words[0], peer: remote.Peer{Address: words[2], HostKey: words[3]}}
	if words[1] != "" {
		l.tokens = strings.Split(strings.TrimPrefix(words[1], "none"), ",")
	}
	return l
}

// Each row is cycles of a fleet of a, b and c: what is known of each, and which of them count.
func TestMachines(t *testing.T) {
	type cycle struct {
		a, b, c, want string
	}
	for _, tt := range []struct {
		name   string
		cycles []cycle
	}{
		{"three machines", []cycle{{"ta none 1 k", "tb none 2 k", "tc none 3 k", "a b c"}}},
		{"the second shows what the first was given", []cycle{{"ta none 1 k", "tb ta 2 k", "tc none 3 k", "a a c"}}},
		{"the first shows what the second was given", []cycle{{"ta tb 1 k", "tb none 2 k", "tc none 3 k", "a a c"}}},
		{"three names of one", []cycle{{"ta tb 1 k", "tb none 2 k", "tc ta,other 3 k", "a a a"}}},
		{"with another host key", []cycle{{"ta none 1 k", "tb ta 2 k2", "down", "a a c"}}},
		{"what others gave", []cycle{{"ta x,y 1 k", "tb x,y 2 k", "tc x,y 3 k", "a b c"}}},
		{"its own token", []cycle{{"ta ta 1 k", "tb tb 2 k", "tc none 3 k", "a b c"}}},
		{"several hosts on one machine", []cycle{{"ta none 1 k", "tb none 1 k", "tc none 1 k", "a b c"}}},
		{"the same connection, and what it shows is of another machine", []cycle{{"ta none 1 k", "tb tc 1 k", "tc none 2 k", "a b b"}}},
		{"by the connection alone", []cycle{{"- - 1 k", "- - 2 k", "- - 1 k", "a b a"}}},
		{"one key on several addresses", []cycle{{"- - 1 k", "- - 2 k", "- - 3 k", "a b c"}}},
		{"several keys on one address", []cycle{{"- - 1 k1", "- - 1 k2", "- - 1 k3", "a b c"}}},
		{"nothing is known", []cycle{{"-", "-", "-", "a b c"}}},
		{"no key is known", []cycle{{"- - 1 -", "- - 1 -", "- - - k", "a b c"}}},
		{"one of them shows tokens", []cycle{{"ta none 1 k", "- - 1 k", "tc none 3 k", "a a c"}}},
		{"a token that nothing was given of", []cycle{{"- - 1 k", "tb ,- 2 k", "down", "a b c"}}},
		{"none answers", []cycle{{"down", "down", "down", "a b c"}}},
		{"the first fails for a while", []cycle{
			{"ta none 1 k", "tb ta 2 k", "down", "a a c"},
			{"down", "tb none 2 k", "down", "a a c"},
			{"down", "down", "down", "a a c"},
			{"ta none 1 k", "down", "down", "a a c"},
			{"ta none 1 k", "tb ta 2 k", "down", "a a c"},
		}},
		{"one that never answered is not taken for another", []cycle{{"down", "tb none 2 k", "down", "a b c"}, {"down", "tb none 2 k", "down", "a b c"}}},
		{"a name that leads elsewhere now", []cycle{{"ta none 1 k", "tb ta 1 k", "down", "a a c"}, {"ta none 1 k", "tb2 none 2 k", "down", "a b c"}}},
		{"a name that leads to an older genv elsewhere", []cycle{{"ta none 1 k", "tb ta 1 k", "down", "a a c"}, {"ta none 1 k", "- - 2 k", "down", "a b c"}}},
		{"two that part while the third is silent", []cycle{{"ta none 1 k", "tb ta 2 k", "tc ta 3 k", "a a a"}, {"down", "tb none 2 k", "tc none 3 k", "a a c"}}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			var m Machines
			names := []string{"a", "b", "c"}
			for i, c := range tt.cycles {
				var got []string
				for _, first := range groupWith(&m, names, []lead{leadOf(c.a), leadOf(c.b), leadOf(c.c)}) {
					got = append(got, names[first])
				}
				require.Equal(t, c.want, strings.Join(got, " "), "cycle %d", i+1)
			}
		})
	}
}

func TestMachinesForgetNamesThatLeft(t *testing.T) {
	var m Machines
	one := leadOf("t t 1 k")
	require.Equal(t, grouping{0, 0}, groupWith(&m, []string{"a", "b"}, []lead{one, one}))
	require.True(t, m.duplicate("b", "a").New)
	require.False(t, m.duplicate("b", "a").New, "it is said once")
	require.Equal(t, grouping{0}, groupWith(&m, []string{"b"}, []lead{{}}))
	require.Empty(t, m.Twins)
	require.Empty(t, m.reported)
	require.Equal(t, grouping{0, 1}, groupWith(&m, []string{"a", "b"}, []lead{one, {}}), "b may lead anywhere by now")
}

// Grouping thousands of names is cheap, even if all are one machine.
func BenchmarkMachines(b *testing.B) {
	for name, n := range map[string]int{"distinct": 1000, "one": 1} {
		b.Run(name, func(b *testing.B) {
			var m Machines
			names, leads := make([]string, 1000), make([]lead, 1000)
			for i := range names {
				names[i] = fmt.Sprint(i)
				leads[i] = leadOf(fmt.Sprintf("t%d t%d %d k", i, i%n, i))
			}
			for b.Loop() {
				groupWith(&m, names, leads)
			}
		})
	}
}

// groupWith groups names, and remembers that for the next time.
func groupWith(m *Machines, names []string, leads []lead) grouping {
	g := m.group(names, leads)
	*m = m.next(names, g)
	return g
}
