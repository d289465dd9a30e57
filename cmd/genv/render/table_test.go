package render

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestShownName(t *testing.T) {
	long := strings.Repeat("é", 33)
	for _, row := range []struct{ format, text, want string }{
		{"tui", "", ""},
		{"tui", "my project", "my project"},
		{"tui", long[2:], long[2:]},
		{"tui", long, long[4:] + "…"},
		{"csv", long, long},
	} {
		require.Equal(t, row.want, Output{Format: row.format}.Name(row.text))
	}
}
