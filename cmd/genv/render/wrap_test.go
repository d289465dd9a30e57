package render_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/seed-3119e985/genv/cmd/genv/render"
)

func TestWrap(t *testing.T) {
	for _, c := range []struct {
		name, text    string
		indent, width int
		want          string
	}{
		{"a pipe", "one two three four five six", 2, 0, "one two three four five six"},
		{"too little room", "one two three four five six", 70, 80, "one two three four five six"},
		{"it fits exactly", "one two three four five", 0, 23, "one two three four five"},
		{"one character less", "one two three four five", 0, 22, "one two three four\nfive"},
		{"an indent", "one two three four five", 3, 25, "one two three four\n   five"},
		{"a word that is too long", "a averylongwordwithoutanyspaceinit b", 0, 20, "a\naverylongwordwithoutanyspaceinit\nb"},
		{"characters, not bytes", "öööö öööö öööö öööö", 0, 20, "öööö öööö öööö öööö"},
		{"nothing", "", 3, 80, ""},
	} {
		require.Equal(t, c.want, render.Wrap(c.text, c.indent, c.width), c.name)
	}
}
