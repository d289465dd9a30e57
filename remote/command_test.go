package remote_test

import (
	"os/exec"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/seed-3119e985/genv/remote"
)

func TestShellLine(t *testing.T) {
	tests := []struct {
		name string
		host remote.Host
		args []string
		want string
	}{
		{"with sudo", remote.Host{}, []string{"usage", "snapshot"}, "sudo -n genv usage snapshot"},
		{"without", remote.Host{NoSudo: true}, []string{"usage", "snapshot"}, "genv usage snapshot"},
		{"elsewhere", remote.Host{GenvPath: "/opt/genv/bin/genv"}, []string{"version"}, "sudo -n /opt/genv/bin/genv version"},
		{"a path with a space", remote.Host{GenvPath: "/opt/my genv", NoSudo: true}, nil, "'/opt/my genv'"},
		{"a path that is a program", remote.Host{GenvPath: "genv; reboot"}, nil, "sudo -n 'genv; reboot'"},
		{"a quote", remote.Host{NoSudo: true}, []string{"it's"}, `genv 'it'\''s'`},
		{"nothing", remote.Host{NoSudo: true}, []string{""}, "genv ''"},
		{"substitutions", remote.Host{NoSudo: true}, []string{"$(id)", "`id`", "$HOME"}, "genv '$(id)' '`id`' '$HOME'"},
		{"what may mean something at the start", remote.Host{NoSudo: true}, []string{"~root", "A=b", "#no"}, "genv '~root' 'A=b' '#no'"},
		{"safe marks", remote.Host{NoSudo: true}, []string{"--max-devices=1", "a_b.c/d:e,f@g%h+1"}, "genv '--max-devices=1' a_b.c/d:e,f@g%h+1"},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			require.Equal(t, test.want, test.host.Genv(test.args...).ShellLine())
		})
	}
}

// What a shell makes of a line is what was put into it.
func TestAShellReadsBackEveryArgument(t *testing.T) {
	args := []string{
		"plain", "", " ", "a b", "'", "''", `\`, `\'`, `"`, "$HOME", "$(id)", "`id`", "*", "?", "[a]", "{a,b}", "~", "~root", "#", "a#b",
		"!", "!!", "&", "|", ";", "<", ">", "(", ")", "a=b", "-n", "--", "\n", "a\nb", "\t", "\x7f", "é", "\xff", "%s", "@", strings.Repeat("x'", 1000),
	}
	line := remote.Command{Args: append([]string{"printf", `%s\0`}, args...)}.ShellLine()
	out, err := exec.Command("/bin/sh", "-c", line).Output()
	require.NoError(t, err)
	require.Equal(t, strings.Join(args, "\x00")+"\x00", string(out))
}

// FuzzQuote: a quoted word has no character that a shell interprets outside of
// single quotes, and taking the quotes off gives the word.
func FuzzQuote(f *testing.F) {
	for _, seed := range []string{"", "a", "it's", "$(id)", "a\nb", "'", `\`} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, word string) {
		quoted := remote.Quote(word)
		if quoted == word {
			require.Regexp(t, `^[A-Za-z0-9_./:,@%+-]+$`, word)
			return
		}
		require.Equal(t, "'", quoted[:1])
		require.Equal(t, "'", quoted[len(quoted)-1:])
		inside := strings.Split(quoted[1:len(quoted)-1], `'\''`)
		for _, piece := range inside {
			require.NotContains(t, piece, "'")
		}
		require.Equal(t, word, strings.Join(inside, "'"))
	})
}
