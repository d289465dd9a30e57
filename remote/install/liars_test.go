package install_test

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"io"
	"runtime"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/seed-3119e985/genv/remote"
	"github.com/seed-3119e985/genv/remote/install"
	"github.com/seed-3119e985/genv/remote/install/onhost"
	"github.com/seed-3119e985/genv/snapshot/proc/proctest"
	"github.com/seed-3119e985/genv/snapshot/text"
)

func program(data []byte, arch string) *install.Binary {
	sum := sha256.Sum256(data)
	return &install.Binary{Data: data, Sum: hex.EncodeToString(sum[:]), Arch: arch}
}

// elf is the header of a program, and the words by which genv is recognised.
func elf(machine byte, words string) []byte {
	header := make([]byte, 64)
	copy(header, "\x7fELF\x02\x01\x01")
	header[18] = machine
	return append(header, words...)
}

const words = "path\tgithub.com/seed-3119e985/genv/cmd/genv\ngenv/remote/install/onhost.(*Host).Serve"

func TestNewProgram(t *testing.T) {
	for name, tt := range map[string]struct {
		data       []byte
		arch, want string
	}{
		"amd64":        {elf(62, words), "amd64", ""},
		"arm64":        {elf(183, words), "arm64", ""},
		"riscv":        {elf(243, words), "", "machine 243"},
		"other":        {elf(62, "busybox"), "", "it is not genv"},
		"earlier":      {elf(62, strings.Replace(words, "Serve", "", 1)), "", "run its own `genv remote install`"},
		"genv-remote":  {elf(62, strings.Replace(words, "cmd/genv", "cmd/genv-remote", 1)), "", "it is not genv"},
		"another main": {elf(62, strings.Replace(words, "cmd/genv", "cmd/genv-demo", 1)), "", "it is not genv"},
		"script":       {[]byte("#!/bin/sh\n" + strings.Repeat("#", 100) + words), "", "not a program for 64-bit Linux"},
		"empty":        {nil, "", "not a program for 64-bit Linux"},
		"32 bit":       {append([]byte("\x7fELF\x01\x01"), make([]byte, 100)...), "", "not a program for 64-bit Linux"},
		"a page of it": {elf(62, words)[:40], "", "not a program for 64-bit Linux"},
	} {
		t.Run(name, func(t *testing.T) {
			p, err := install.NewProgram(tt.data)
			if tt.want != "" {
				require.ErrorContains(t, err, tt.want)
				return
			}
			require.NoError(t, err)
			require.Equal(t, program(tt.data, tt.arch), p)
		})
	}
	own := proctest.ReadFile(t, "/proc/self/exe")
	proctest.Try(install.NewProgram(append(own[:64:64], words...))).OK(t, "a program for %s", runtime.GOARCH)
}

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
	if l.fails && (!l.refusesSudo || len(l.sent) > 2) {
		return out, remote.Errorf(remote.CommandFailed, "%s: %s", h.Name, text.Printable(answer))
	}
	return out, nil
}

const (
	honestLogin = "Welcome!\nTOKEN uid 0\nTOKEN user root\nTOKEN system Linux\nTOKEN machine x86_64\nTOKEN end\n"
	honestRoot  = "TOKEN sha256sum\nTOKEN end\n"
	// honestAnswer is what the program says.
	honestAnswer = `TOKEN answer {"Outcome":{"result":"installed","now":{"version":"v9"}}}` + "\n"
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
		"says nothing":            {[]string{""}, "not complete"},
		"guesses the token":       {[]string{strings.ReplaceAll(honestLogin, "TOKEN", strings.Repeat("A", 26))}, "not complete"},
		"ends in the middle":      {[]string{strings.Replace(honestLogin, "TOKEN end", "TOKEN en", 1)}, "not complete"},
		"looks at nothing":        {[]string{honestLogin, ""}, "not complete"},
		"has a strange machine":   {[]string{"TOKEN uid 0\nTOKEN system Linux\nTOKEN machine \x1b]0;x\x07" + long + "\nTOKEN end\n"}, `Linux on \x1b]0;x\a`},
		"has a strange user":      {[]string{"TOKEN uid 7\nTOKEN user -x\nTOKEN end\n"}, "begins with a dash"},
		"has a user of two words": {[]string{"TOKEN uid 7\nTOKEN user a, b ALL=(ALL)\nTOKEN end\n"}, "is not a user name"},
		"ends the script early":   {[]string{honestLogin, honestRoot, "TOKEN step upload\n"}, "interrupted after the step upload"},
		"says that it failed":     {[]string{honestLogin, honestRoot, "TOKEN why \x1b[31mno\nTOKEN failed " + long + "\nTOKEN done\n"}, `the installation failed: x`},
		"says nothing of the end": {[]string{honestLogin, honestRoot, "TOKEN answer {}\n"}, "not complete"},
		"says a strange result":   {[]string{honestLogin, honestRoot, strings.Replace(honestAnswer, "installed", "fine", 1)}, "not complete"},
		"gives a strange reason":  {[]string{honestLogin, honestRoot, `TOKEN answer {"Failure":{"class":"x","error":"\u001b[31m` + long + "\"}}\n"}, `\x1b[31mx`},
		"lies about the checksum": {[]string{honestLogin, honestRoot, honestAnswer, "hello"}, "genv does not greet"},
		"runs another version":    {[]string{honestLogin, honestRoot, honestAnswer, strings.Repeat("\n", 2<<20)}, "genv does not greet"},
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

// TestNothingIsUploadedInVain: to a host that is refused, or that has the program, none is sent; to another one it goes.
func TestNothingIsUploadedInVain(t *testing.T) {
	for _, tt := range []struct {
		login, root string
		sent        int // commands
		upload      string
	}{
		{strings.Replace(honestLogin, "x86_64", "riscv64", 1), "", 1, ""},
		{honestLogin, "TOKEN end\n", 2, ""},
		{honestLogin, "TOKEN here\nTOKEN end\n", 3, ""},
		{honestLogin, honestRoot, 3, "a program"},
		{honestLogin, strings.Replace(honestRoot, "TOKEN end", "TOKEN gzip\nTOKEN end", 1), 3, "\x1f\x8b"},
	} {
		l := &liar{answers: []string{tt.login, tt.root, honestAnswer}}
		_, err := (&install.Installer{Runner: l, Programs: small(), Options: onhost.Options{Check: true}}).Install(t.Context(), host)
		require.Equal(t, tt.sent < 3, remote.ClassOf(err) == remote.InstallRefused, "%v", err)
		require.Len(t, l.sent, tt.sent)
		if upload := l.sent[tt.sent-1].Upload; tt.upload == "" {
			require.Nil(t, upload)
		} else {
			require.Equal(t, tt.upload, string(proctest.Try(io.ReadAll(upload)).OK(t)[:len(tt.upload)]))
		}
	}
	l := &liar{answers: []string{strings.Replace(honestLogin, "x86_64", "arm64", 1), "TOKEN here\nTOKEN end\n", "TOKEN step begin\n"}}
	_, err := (&install.Installer{Runner: l, Programs: small()}).Uninstall(t.Context(), host)
	require.ErrorContains(t, err, "interrupted after the step begin", "it may be a genv that knows all that is asked")
}

// TestCommandLinesForAnyShell: csh and fish pass them on to sh as they are. See also remote.Quote.
func TestCommandLinesForAnyShell(t *testing.T) {
	l := &liar{answers: []string{strings.Replace(honestLogin, "uid 0", "uid 7", 1), honestRoot, honestAnswer}}
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
	f.Add(honestLogin, honestRoot, honestAnswer, false)
	f.Add(honestLogin, "TOKEN here\nTOKEN end", "TOKEN failed \x1b", true)
	f.Fuzz(func(t *testing.T, first, second, third string, fails bool) {
		i := &install.Installer{Runner: &liar{answers: []string{first, second, third}, fails: fails}, Programs: small()}
		for _, do := range []func(context.Context, remote.Host) (*onhost.Outcome, error){i.Install, i.Install, i.Uninstall, i.Uninstall} {
			i.Options.Check = !i.Options.Check
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
