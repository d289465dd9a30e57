package install_test

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"runtime"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/seed-3119e985/genv/remote"
	"github.com/seed-3119e985/genv/remote/install"
	"github.com/seed-3119e985/genv/snapshot/proc/proctest"
	"github.com/seed-3119e985/genv/snapshot/text"
)

const place = remote.DefaultGenv

var (
	sumA = strings.Repeat("a", 64)
	sumB = strings.Repeat("b", 64)
)

func wanted() *install.Options {
	return &install.Options{Path: place, Account: "admin"}
}

var binary = &install.Binary{Data: make([]byte, 1<<20), Sum: sumB, Arch: "amd64"}

// complete is a host that has all that wanted says.
func complete() *install.Survey {
	return &install.Survey{
		Found: place, Sum: sumB, Version: "v1", Folders: []install.Folder{{Path: "/usr/local/bin", UID: "0", Mode: "755"}},
		AccountUID: "1000", Shims: true, RulesSum: sumA, RulesFolder: &install.Folder{Path: "/etc/sudoers.d", UID: "0", Mode: "755"},
		Rules: strings.Split(strings.TrimSuffix(install.Sudoers(place, "", "admin"), "\n"), "\n"),
	}
}

// TestDecide: what a host has and what it is to have say what is done.
func TestDecide(t *testing.T) {
	for name, tt := range map[string]struct {
		change  func(*install.Options, *install.Survey)
		result  string
		program bool
		sudoers bool
		shims   bool
		notes   int
	}{
		"has everything": {func(*install.Options, *install.Survey) {}, install.Unchanged, false, false, false, 0},
		"has nothing": {func(_ *install.Options, s *install.Survey) {
			s.Found, s.Sum, s.RulesSum, s.Rules, s.Shims = "", "", "", nil, false
		}, install.Installed, true, true, true, 0},
		"has another version": {func(w *install.Options, s *install.Survey) { s.Sum, w.Upgrade = sumA, true }, install.Upgraded, true, false, false, 0},
		"lacks the rules":     {func(_ *install.Options, s *install.Survey) { s.Rules = nil }, install.Repaired, false, true, false, 0},
		"lacks the shims":     {func(_ *install.Options, s *install.Survey) { s.Shims = false }, install.Repaired, false, false, true, 0},
		"is logged in as root": {func(w *install.Options, s *install.Survey) {
			w.Account, s.Rules, s.RulesSum, s.Missing, s.RulesFolder = "", nil, "", []string{"visudo"}, nil
		}, install.Unchanged, false, false, false, 0},
		"has the plain line of the documentation": {func(_ *install.Options, s *install.Survey) {
			s.Rules = []string{"# genv", remote.SudoersLine("admin", place)}
		}, install.Repaired, false, true, false, 0},
		"has the file of an earlier version": {func(_ *install.Options, s *install.Survey) {
			s.Rules, s.RulesSum = nil, ""
			s.OldSum, s.OldRules = sumA, []string{"bob ALL=(root) NOPASSWD: " + strings.ReplaceAll("G usage snapshot, G usage snapshot *, G usage execute, G usage serve *", "G", place)}
		}, install.Repaired, false, true, false, 0},
		"has an earlier file of others": {func(_ *install.Options, s *install.Survey) {
			s.OldSum, s.OldRules = sumA, []string{"bob ALL=(ALL) ALL"}
		}, install.Unchanged, false, false, false, 1},
		"has lines for a uid": {func(w *install.Options, s *install.Survey) {
			w.Account, s.Rules = "Ann Lee", strings.Split(install.Sudoers(place, "", "#1000"), "\n")
		}, install.Unchanged, false, false, false, 0},
		"has no account for the controller's key": {func(w *install.Options, s *install.Survey) {
			w.Key, s.AccountUID, s.Rules, s.RulesSum = "ssh-ed25519 AAAA", "", nil, ""
		}, install.Repaired, false, true, false, 2},
		"has an account without the key": {func(w *install.Options, _ *install.Survey) { w.Key = "ssh-ed25519 AAAA" }, install.Repaired, false, false, false, 1},
		"has the controller's key":       {func(w *install.Options, s *install.Survey) { w.Key, s.HasKey = "ssh-ed25519 AAAA", true }, install.Unchanged, false, false, false, 0},
		"has an account that sshd refuses": {func(w *install.Options, s *install.Survey) {
			w.Key, s.SSHRefuses = "ssh-ed25519 AAAA", []string{"AllowUsers"}
		}, install.Repaired, false, false, false, 1},
		"has the key, and sshd refuses the account": {func(w *install.Options, s *install.Survey) {
			w.Key, s.HasKey, s.SSHRefuses = "ssh-ed25519 AAAA", true, []string{"AllowUsers", "AllowGroups"}
		}, install.Unchanged, false, false, false, 1},
		"has another path of the site": {func(_ *install.Options, s *install.Survey) { s.SudoPath = "/bin:/opt/nvidia/bin" }, install.Repaired, false, true, false, 0},
		"has lines of others":          {func(_ *install.Options, s *install.Survey) { s.Rules = []string{"bob ALL=(ALL) ALL"} }, install.Unchanged, false, false, false, 1},
		"has a rule with an include":   {func(_ *install.Options, s *install.Survey) { s.Rules = []string{"#includedir /etc/x"} }, install.Unchanged, false, false, false, 1},
		"finds another genv":           {func(_ *install.Options, s *install.Survey) { s.Found = "/opt/genv" }, install.Unchanged, false, false, false, 1},
		"has files of a crash":         {func(_ *install.Options, s *install.Survey) { s.Leftovers = []string{"x"} }, install.Unchanged, false, false, false, 0},
		"has a package of another":     {func(_ *install.Options, s *install.Survey) { s.Packages = map[string]string{"/bin/ls": "coreutils"} }, install.Unchanged, false, false, false, 0},
		"has a place without shims": {func(w *install.Options, s *install.Survey) {
			w.Path, s.Shims = "/opt/genv/genv", false
			s.Rules = strings.Split(install.Sudoers(w.Path, "", "admin"), "\n")
			s.Found = w.Path
		}, install.Unchanged, false, false, false, 0},
		"has two accounts in its file": {func(_ *install.Options, s *install.Survey) {
			s.Rules = strings.Split(install.Sudoers(place, "", "bob", "admin"), "\n")
		}, install.Unchanged, false, false, false, 0},
	} {
		t.Run(name, func(t *testing.T) {
			w, s := wanted(), complete()
			tt.change(w, s)
			plan := proctest.Try(install.Decide(w, binary, s)).OK(t)
			require.Equal(t, tt.result, plan.Result)
			require.Equal(t, tt.program, plan.Program != nil)
			require.Equal(t, tt.sudoers, plan.Sudoers != "", plan.Sudoers)
			require.Equal(t, tt.shims, plan.Shims)
			require.Equal(t, name == "has the file of an earlier version", plan.Earlier == sumA)
			require.Equal(t, plan.Earlier != "", strings.Contains(plan.Sudoers, "\nbob ALL="))
			require.Len(t, plan.Notes, tt.notes)
			require.Equal(t, len(s.SSHRefuses) > 0, strings.Contains(strings.Join(plan.Notes, "\n"), "sshd refuses logins of admin: add it to AllowUsers"))
			require.False(t, len(s.SSHRefuses) > 0 && strings.Contains(strings.Join(plan.Notes, "\n"), "may log in"))
			require.Equal(t, tt.result == install.Unchanged, plan.Complete())
		})
	}
}

// TestDecideRefuses: hosts that can't take it.
func TestDecideRefuses(t *testing.T) {
	for want, change := range map[string]func(*install.Options, *install.Survey){
		"belongs to the package genv": func(_ *install.Options, s *install.Survey) { s.Packages = map[string]string{place: "genv"} },
		"/usr/bin/genv belongs to the package genv": func(_ *install.Options, s *install.Survey) {
			s.Found, s.Packages = "/usr/bin/genv", map[string]string{"/usr/bin/genv": "genv"}
		},
		"is not a file":                            func(_ *install.Options, s *install.Survey) { s.Other = true },
		"is a symbolic link to /x":                 func(_ *install.Options, s *install.Survey) { s.Link = "/x" },
		"is another genv: version v1, sha256 aaaa": func(_ *install.Options, s *install.Survey) { s.Sum = sumA },
		"is another genv: version v1, sha256 ?":    func(_ *install.Options, s *install.Survey) { s.Sum = "?" },
		"may change what is in /usr/local/bin":     func(_ *install.Options, s *install.Survey) { s.Folders[0].Unsafe = true },
		"doesn't say which folders":                func(_ *install.Options, s *install.Survey) { s.Folders = nil },
		"no sha256sum on the host":                 func(_ *install.Options, s *install.Survey) { s.Missing = []string{"sha256sum"} },
		"has no account \"admin\"":                 func(_ *install.Options, s *install.Survey) { s.Rules, s.AccountUID = nil, "" },
		"has no account \"Ann Lee\"": func(w *install.Options, s *install.Survey) {
			w.Key, w.Account, s.Rules, s.AccountUID = "ssh-ed25519 AAAA", "Ann Lee", nil, ""
		},
		"no visudo":                                 func(_ *install.Options, s *install.Survey) { s.Rules, s.Missing = nil, []string{"visudo"} },
		"there is no /etc/sudoers.d":                func(_ *install.Options, s *install.Survey) { s.Rules, s.RulesFolder = nil, nil },
		"may change what is in /etc/sudoers.d":      func(_ *install.Options, s *install.Survey) { s.Rules, s.RulesFolder.Unsafe = nil, true },
		"/etc/sudoers.d/zz-genv is a symbolic link": func(_ *install.Options, s *install.Survey) { s.RulesLink = true },
	} {
		t.Run(want, func(t *testing.T) {
			w, s := wanted(), complete()
			change(w, s)
			_, err := install.Decide(w, binary, s)
			require.ErrorContains(t, err, want)
			require.NotEmpty(t, remote.NextStepOf(err))
		})
	}
}

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

const words = "path\tgithub.com/seed-3119e985/genv/cmd/genv\n"

func TestNewProgram(t *testing.T) {
	for name, tt := range map[string]struct {
		data       []byte
		arch, want string
	}{
		"amd64":        {elf(62, words), "amd64", ""},
		"arm64":        {elf(183, words), "arm64", ""},
		"riscv":        {elf(243, words), "", "machine 243"},
		"other":        {elf(62, "busybox"), "", "it is not genv"},
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

// TestDecideState: root owns the state of new hosts, and an upgrade never changes who owns it.
func TestDecideState(t *testing.T) {
	fresh := func(s *install.Survey) { s.Sum, s.Systemd = "", true }
	owned := func(s *install.Survey) { s.Systemd, s.Owned, s.Units = true, true, []string{sumA, sumB} }
	for name, tt := range map[string]struct {
		wanted string
		change func(*install.Survey)
		state  string
		units  bool
		notes  int
	}{
		"a new host":                         {"", fresh, install.StateRoot, true, 1},
		"a new host without systemd":         {"", func(s *install.Survey) { s.Sum, s.NotNew = "", "it doesn't run systemd" }, "", false, 1},
		"a new host that is to be shared":    {install.StateShared, fresh, "", false, 0},
		"a host with state":                  {"", func(s *install.Survey) { fresh(s); s.NotNew = "it has a state folder, /x" }, "", false, 1},
		"the same, which is to be shared":    {install.StateShared, func(s *install.Survey) { fresh(s); s.NotNew = "it has a state folder, /x" }, "", false, 0},
		"the same, which is root's":          {"", func(s *install.Survey) { fresh(s); s.NotNew, s.Owned = "it has a state folder, /x", true }, "", false, 0},
		"a host without GPUs":                {"", func(s *install.Survey) { fresh(s); s.NotNew = "it has no driver" }, "", false, 1},
		"a host with genv 1.4.3":             {"", func(s *install.Survey) { fresh(s); s.NotNew = "it has genv 1.4.3, /x" }, "", false, 1},
		"the same, and root is to own it":    {install.StateRoot, func(s *install.Survey) { fresh(s); s.NotNew = "it has genv 1.4.3, /x" }, install.StateRoot, true, 1},
		"an upgrade of shared state":         {"", func(s *install.Survey) { s.Systemd, s.Sum = true, sumA }, "", false, 0},
		"an upgrade of root's state":         {"", func(s *install.Survey) { owned(s); s.Sum = sumA }, "", true, 0},
		"a unit that differs":                {"", owned, "", true, 0},
		"root's state is to be shared":       {install.StateShared, owned, install.StateShared, false, 1},
		"shared state is to be root's":       {install.StateRoot, func(s *install.Survey) { s.Systemd = true }, install.StateRoot, true, 1},
		"a service that was turned off":      {"", func(s *install.Survey) { owned(s); s.Owned = false; s.Sum = sumA }, "", true, 0},
		"a service that is to be root's now": {install.StateRoot, func(s *install.Survey) { owned(s); s.Owned = false }, install.StateRoot, true, 1},
	} {
		t.Run(name, func(t *testing.T) {
			w, s := wanted(), complete()
			w.State, w.Upgrade = tt.wanted, true
			tt.change(s)
			plan := proctest.Try(install.Decide(w, binary, s)).OK(t)
			require.Equal(t, tt.state, plan.State)
			require.Equal(t, tt.units, plan.Units)
			require.Len(t, plan.Notes, tt.notes, "%q", plan.Notes)
			require.Equal(t, tt.state == "" && !tt.units && s.Sum == sumB, plan.Complete())
		})
	}
	w := wanted()
	w.State = install.StateRoot
	require.ErrorContains(t, proctest.Try(install.Decide(w, binary, complete())).Err, "needs systemd")
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
	outcome := done(t, (&install.Installer{Runner: honest, Programs: small(), Options: install.Options{Check: true}}).Install, host)
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
		i := &install.Installer{Runner: &liar{answers: []string{honestLogin, tt.look, "TOKEN end\n"}}, Options: install.Options{Purge: tt.purge, Check: true}}
		outcome := proctest.Try(i.Uninstall(t.Context(), host)).OK(t, tt.name)
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
		for _, do := range []func(context.Context, remote.Host) (*install.Outcome, error){i.Install, i.Install, i.Uninstall, i.Uninstall} {
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
