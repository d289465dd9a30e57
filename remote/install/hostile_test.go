package install_test

import (
	"context"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/seed-3119e985/genv/remote"
	"github.com/seed-3119e985/genv/remote/install"
	"github.com/seed-3119e985/genv/snapshot/text"
)

// liar answers each script with its own text, in which TOKEN is the script's.
type liar struct {
	answers     []string
	fails       bool
	refusesSudo bool // without a password
	sent        []remote.Command
}

func (l *liar) Run(_ context.Context, h remote.Host, command remote.Command) (remote.Output, error) {
	answer := l.answers[min(len(l.sent), len(l.answers)-1)]
	l.sent = append(l.sent, command)
	token, _, _ := strings.Cut(string(command.Stdin), "\n")
	if l.refusesSudo && len(l.sent) == 2 {
		return remote.Output{}, remote.Errorf(remote.Sudo, "%s: sudo wants a password", h.Name)
	}
	if l.refusesSudo && len(l.sent) > 3 { // after the password
		_, rest, _ := strings.Cut(string(command.Stdin), "\n")
		token, _, _ = strings.Cut(rest, "\n")
	}
	out := remote.Output{Stdout: []byte(strings.ReplaceAll(answer, "TOKEN", token)), Stderr: []byte(answer)}
	if l.fails {
		return out, remote.Errorf(remote.CommandFailed, "%s: %s", h.Name, text.Printable(answer))
	}
	return out, nil
}

const (
	honestLogin = "Welcome!\nTOKEN uid 0\nTOKEN user root\nTOKEN system Linux\nTOKEN machine x86_64\nTOKEN end\n"
	honestLook  = "TOKEN folder 0 755 /\nTOKEN shims\nTOKEN end\n"
)

func small() map[string]*install.Binary {
	return map[string]*install.Binary{"amd64": program([]byte("a program"), "amd64")}
}

// TestHostsThatLie: a host that reports what isn't so is believed about itself only as far
// as genv answers there in the end, and has no words of its own on a terminal.
func TestHostsThatLie(t *testing.T) {
	long := strings.Repeat("x", 100_000)
	for name, tt := range map[string]struct {
		answers []string
		want    string
	}{
		"says nothing":             {[]string{""}, "not complete"},
		"guesses the token":        {[]string{strings.ReplaceAll(honestLogin, "TOKEN", strings.Repeat("A", 26))}, "not complete"},
		"ends in the middle":       {[]string{strings.Replace(honestLogin, "TOKEN end", "TOKEN en", 1)}, "not complete"},
		"looks at nothing":         {[]string{honestLogin, ""}, "not complete"},
		"has no folders":           {[]string{honestLogin, "TOKEN end\n"}, "doesn't say which folders"},
		"has folders without mode": {[]string{honestLogin, "TOKEN folder\nTOKEN end\n"}, "others than root may change"},
		"has a strange machine":    {[]string{"TOKEN uid 0\nTOKEN system Linux\nTOKEN machine \x1b]0;x\x07" + long + "\nTOKEN end\n"}, `Linux on \x1b]0;x\a`},
		"has a strange user":       {[]string{"TOKEN uid 7\nTOKEN user -x\nTOKEN end\n"}, "begins with a dash"},
		"has a user of two words":  {[]string{"TOKEN uid 7\nTOKEN user a, b ALL=(ALL)\nTOKEN end\n"}, "is not a user name"},
		"ends the script early":    {[]string{honestLogin, honestLook, "TOKEN step upload\n"}, "interrupted after the step upload"},
		"says that it failed":      {[]string{honestLogin, honestLook, "TOKEN why \x1b[31mno\nTOKEN failed " + long + "\nTOKEN done\n"}, `the installation failed: x`},
		"lies about the checksum":  {[]string{honestLogin, honestLook, "TOKEN version v9\nTOKEN done\n", "hello"}, "genv does not greet"},
		"runs another version":     {[]string{honestLogin, honestLook, "TOKEN version v9\nTOKEN done\n", strings.Repeat("\n", 2<<20)}, "genv does not greet"},
	} {
		t.Run(name, func(t *testing.T) {
			l := &liar{answers: tt.answers}
			_, err := (&install.Installer{Runner: l, Programs: small()}).Install(t.Context(), host)
			require.ErrorContains(t, err, tt.want)
			require.Equal(t, text.Printable(err.Error()), err.Error())
			require.Less(t, len(err.Error()), 10_000)
		})
	}
}

// TestNothingIsUploadedInVain: to a host that is refused no program is sent, and by Check nothing is.
func TestNothingIsUploadedInVain(t *testing.T) {
	l := &liar{answers: []string{honestLogin, "TOKEN folder 7 777 /\nTOKEN end\n"}}
	_, err := (&install.Installer{Runner: l, Programs: small()}).Install(t.Context(), host)
	require.Equal(t, remote.InstallRefused, remote.ClassOf(err))
	honest := &liar{answers: []string{honestLogin, honestLook}}
	outcome, err := (&install.Installer{Runner: honest, Programs: small()}).Check(t.Context(), host)
	require.NoError(t, err)
	require.Equal(t, install.Installed, outcome.Result)
	for _, command := range append(l.sent, honest.sent...) {
		require.Nil(t, command.Upload)
	}
}

// TestUninstallSaysWhoWritesTheState: where root's service goes and the state stays.
func TestUninstallSaysWhoWritesTheState(t *testing.T) {
	look := strings.Replace(honestLook, "TOKEN end", "TOKEN file "+sumA+"\nTOKEN end", 1)
	for _, tt := range []struct {
		name, look string
		purge      bool
		notes      int
	}{
		{"root", strings.Replace(look, "TOKEN end", "TOKEN owned\nTOKEN end", 1), false, 1},
		{"root, and the state goes", strings.Replace(look, "TOKEN end", "TOKEN owned\nTOKEN end", 1), true, 0},
		{"every user", look, false, 0},
		{"nobody", honestLook, false, 0},
	} {
		i := &install.Installer{Runner: &liar{answers: []string{honestLogin, tt.look, "TOKEN end\n"}}, Options: install.Options{Purge: tt.purge}}
		outcome, err := i.CheckUninstall(t.Context(), host)
		require.NoError(t, err, tt.name)
		require.Len(t, outcome.Notes, tt.notes, tt.name)
		if tt.notes > 0 {
			require.Contains(t, outcome.Notes[0], "--state root")
		}
	}
}

// TestCommandLinesForAnyShell: csh and fish pass them on to sh as they are. See also remote.Quote.
func TestCommandLinesForAnyShell(t *testing.T) {
	l := &liar{answers: []string{strings.Replace(honestLogin, "uid 0", "uid 7", 1), "TOKEN folder 0 755 /\nTOKEN account 7\nTOKEN rules-folder 0 755\nTOKEN end\n", "TOKEN done\n"}}
	_, err := (&install.Installer{Runner: l, Programs: small()}).Install(t.Context(), host)
	require.Error(t, err)
	require.Len(t, l.sent, 4)
	for _, command := range l.sent {
		line := command.ShellLine()
		require.NotContains(t, line, "!", line)
		require.NotContains(t, line, "\n")
		for _, word := range command.Args {
			require.NotContains(t, word, "'")
			require.NotContains(t, word, `\\`)
		}
	}
}

// FuzzAnswers: no answer of a host makes the installer crash, or reaches a terminal as it is.
func FuzzAnswers(f *testing.F) {
	f.Add(honestLogin, honestLook, "TOKEN done\n", false)
	f.Add(honestLogin, "TOKEN file x\nTOKEN rule \\\nTOKEN rules-file\nTOKEN package\nTOKEN missing\nTOKEN end", "TOKEN failed \x1b", true)
	f.Fuzz(func(t *testing.T, first, second, third string, fails bool) {
		i := &install.Installer{Runner: &liar{answers: []string{first, second, third}, fails: fails}, Programs: small()}
		for _, do := range []func(context.Context, remote.Host) (*install.Outcome, error){i.Install, i.Check, i.Uninstall} {
			i.Runner = &liar{answers: []string{first, second, third}, fails: fails}
			outcome, err := do(t.Context(), host)
			if err != nil {
				require.NotEmpty(t, remote.NextStepOf(err))
				require.Equal(t, text.Printable(err.Error()), err.Error())
				continue
			}
			require.NotEmpty(t, outcome.Result)
		}
	})
}
