package sshclient

import (
	"strings"
	"testing"
	"unicode"
	"unicode/utf8"

	"github.com/stretchr/testify/require"

	"github.com/seed-3119e985/genv/remote"
)

// FuzzExitError: whatever a host writes, the message is one printable line.
func FuzzExitError(f *testing.F) {
	for _, text := range []string{"", "sudo: a password is required\n", "sudo: genv: command not found", "\x1b[2J\r\n\xff", strings.Repeat("x", 1000)} {
		f.Add(text, 1)
	}
	f.Fuzz(func(t *testing.T, text string, status int) {
		err := exitError("gpu", status, "", []byte(text))
		require.True(t, utf8.ValidString(err.Error()))
		require.Less(t, len(err.Error()), 4000)
		for _, r := range err.Error() {
			require.True(t, unicode.IsGraphic(r), "%q", err.Error())
		}
		require.Contains(t, []remote.Class{remote.Sudo, remote.SudoRefused, remote.GenvMissing, remote.CommandFailed}, err.Class)
		require.Equal(t, text, err.Stderr)
	})
}
