package config

import (
	"maps"
	"os"
	"os/exec"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/seed-3119e985/genv/snapshot/proc/proctest"
)

// verdicts are what the code does with each keyword, in the words of docs/ssh.md. What is in no list needs ssh.
func verdicts() map[string]string {
	all := map[string]string{"host": "honoured", "include": "honoured"}
	for keyword := range honoured() {
		all[keyword] = "honoured"
	}
	for _, keyword := range []string{"pkcs11provider", "revokedhostkeys"} {
		all[keyword] = "refused"
	}
	for _, keyword := range ignored() {
		all[keyword] = "no effect"
	}
	for alias, keyword := range aliases {
		all[alias] = all[keyword]
	}
	return all
}

// documented are the verdicts of docs/ssh.md.
func documented(t *testing.T) map[string]string {
	t.Helper()
	page := proctest.ReadFile(t, "../../../docs/ssh.md")
	_, table, found := strings.Cut(string(page), "| keyword | verdict | note |\n")
	require.True(t, found)
	table, _, _ = strings.Cut(table, "\n\n")
	all := map[string]string{}
	name := regexp.MustCompile("`(\\w+)`")
	for line := range strings.Lines(table) {
		cells := strings.Split(line, "|")
		if len(cells) < 5 || strings.HasPrefix(line, "|---") {
			continue
		}
		for _, m := range name.FindAllStringSubmatch(cells[1], -1) {
			keyword := strings.ToLower(m[1])
			require.NotContains(t, all, keyword, "listed twice")
			all[keyword] = strings.TrimSpace(cells[2])
		}
	}
	return all
}

func TestEveryKeywordIsDocumented(t *testing.T) {
	all := documented(t)
	maps.DeleteFunc(all, func(_, verdict string) bool { return verdict == "needs ssh" })
	require.Equal(t, verdicts(), all)
}

// A keyword that this machine's ssh prints has a verdict.
func TestEveryKeywordOfOpenSSHIsKnown(t *testing.T) {
	out, err := exec.Command("ssh", "-G", "-F", "none", "gpu").Output()
	if err != nil {
		if os.Getenv("CI") == "true" {
			t.Fatal("this test needs OpenSSH's ssh, and CI must not skip it: ", err)
		}
		t.Skip("skipped: this test needs OpenSSH's ssh: ", err)
	}
	known := documented(t)
	for line := range strings.Lines(string(out)) {
		keyword, _, _ := strings.Cut(line, " ")
		require.Contains(t, known, strings.ToLower(keyword))
	}
}

// The lists of docs/ssh.md are those of the code.
func TestAlgorithmsAreDocumented(t *testing.T) {
	page := proctest.ReadFile(t, "../../../docs/ssh.md")
	words := strings.Join(strings.Fields(string(page)), " ")
	for _, l := range algorithmLists()[:3] {
		here := l.here
		missing := func(name string) bool { return !slices.Contains(here, name) }
		byDefault := slices.DeleteFunc(slices.Clone(l.defaults), missing)
		onRequest := slices.DeleteFunc(slices.Clone(here), func(name string) bool { return slices.Contains(byDefault, name) })
		require.Contains(t, words, "- `"+l.name+"`: "+strings.Join(byDefault, ", ")+"; on request only "+strings.Join(onRequest, ", ")+". ")
	}
}
