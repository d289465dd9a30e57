package onhost_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/seed-3119e985/genv/remote"
	"github.com/seed-3119e985/genv/remote/install/onhost"
	"github.com/seed-3119e985/genv/snapshot/proc/proctest"
)

const place = remote.DefaultGenv

var (
	sumA = strings.Repeat("a", 64)
	sumB = strings.Repeat("b", 64)
)

func wanted() *onhost.Request {
	return &onhost.Request{Options: onhost.Options{Path: place, Account: "admin"}, Sum: sumB}
}

// complete is a host that has all that wanted says.
func complete() *onhost.Survey {
	return &onhost.Survey{
		Found: place, Sum: sumB, Version: "v1",
		AccountUID: "1000", Shims: true, RulesFolder: true,
		Rules: onhost.Rules{Sum: sumA, Content: onhost.Sudoers(place, "", "admin")},
	}
}

// TestDecide: what a host has and what it is to have say what is done.
func TestDecide(t *testing.T) {
	for name, tt := range map[string]struct {
		change  func(*onhost.Request, *onhost.Survey)
		result  string
		program bool
		sudoers bool
		shims   bool
		notes   int
	}{
		"has everything": {func(*onhost.Request, *onhost.Survey) {}, onhost.Unchanged, false, false, false, 0},
		"has nothing": {func(_ *onhost.Request, s *onhost.Survey) {
			s.Found, s.Sum, s.Rules.Sum, s.Rules.Content, s.Shims = "", "", "", "", false
		}, onhost.Installed, true, true, true, 0},
		"has another version": {func(w *onhost.Request, s *onhost.Survey) { s.Sum, w.Upgrade = sumA, true }, onhost.Upgraded, true, false, false, 0},
		"lacks the rules":     {func(_ *onhost.Request, s *onhost.Survey) { s.Rules.Content = "" }, onhost.Repaired, false, true, false, 0},
		"lacks the shims":     {func(_ *onhost.Request, s *onhost.Survey) { s.Shims = false }, onhost.Repaired, false, false, true, 0},
		"is logged in as root": {func(w *onhost.Request, s *onhost.Survey) {
			w.Account, s.Rules.Content, s.Rules.Sum, s.NoVisudo, s.RulesFolder = "", "", "", true, false
		}, onhost.Unchanged, false, false, false, 0},
		"has the plain line of the documentation": {func(_ *onhost.Request, s *onhost.Survey) {
			s.Rules.Content = "# genv\n" + remote.SudoersLine("admin", place)
		}, onhost.Repaired, false, true, false, 0},
		"has the file of an earlier version": {func(_ *onhost.Request, s *onhost.Survey) {
			s.Rules.Content, s.Rules.Sum = "", ""
			s.Earlier.Sum, s.Earlier.Content = sumA, "bob ALL=(root) NOPASSWD: "+strings.ReplaceAll("G usage snapshot, G usage snapshot *, G usage execute, G usage serve *", "G", place)
		}, onhost.Repaired, false, true, false, 0},
		"has an earlier file of others": {func(_ *onhost.Request, s *onhost.Survey) {
			s.Earlier.Sum, s.Earlier.Content = sumA, "bob ALL=(ALL) ALL"
		}, onhost.Unchanged, false, false, false, 1},
		"has lines for a uid": {func(w *onhost.Request, s *onhost.Survey) {
			w.Account, s.Rules.Content = "Ann Lee", onhost.Sudoers(place, "", "#1000")
		}, onhost.Unchanged, false, false, false, 0},
		"has no account for the controller's key": {func(w *onhost.Request, s *onhost.Survey) {
			w.Key, s.AccountUID, s.Rules.Content, s.Rules.Sum = "ssh-ed25519 AAAA", "", "", ""
		}, onhost.Repaired, false, true, false, 2},
		"has an account without the key": {func(w *onhost.Request, _ *onhost.Survey) { w.Key = "ssh-ed25519 AAAA" }, onhost.Repaired, false, false, false, 1},
		"has the controller's key":       {func(w *onhost.Request, s *onhost.Survey) { w.Key, s.HasKey = "ssh-ed25519 AAAA", true }, onhost.Unchanged, false, false, false, 0},
		"has an account that sshd refuses": {func(w *onhost.Request, s *onhost.Survey) {
			w.Key, s.SSHRefuses = "ssh-ed25519 AAAA", []string{"AllowUsers"}
		}, onhost.Repaired, false, false, false, 1},
		"has the key, and sshd refuses the account": {func(w *onhost.Request, s *onhost.Survey) {
			w.Key, s.HasKey, s.SSHRefuses = "ssh-ed25519 AAAA", true, []string{"AllowUsers", "AllowGroups"}
		}, onhost.Unchanged, false, false, false, 1},
		"has another path of the site": {func(_ *onhost.Request, s *onhost.Survey) { s.SudoPath = "/bin:/opt/nvidia/bin" }, onhost.Repaired, false, true, false, 0},
		"has lines of others":          {func(_ *onhost.Request, s *onhost.Survey) { s.Rules.Content = "bob ALL=(ALL) ALL" }, onhost.Unchanged, false, false, false, 1},
		"has a rule with an include":   {func(_ *onhost.Request, s *onhost.Survey) { s.Rules.Content = "#includedir /etc/x" }, onhost.Unchanged, false, false, false, 1},
		"finds another genv":           {func(_ *onhost.Request, s *onhost.Survey) { s.Found = "/opt/genv" }, onhost.Unchanged, false, false, false, 1},
		"has a place without shims": {func(w *onhost.Request, s *onhost.Survey) {
			w.Path, s.Shims = "/opt/genv/genv", false
			s.Rules.Content = onhost.Sudoers(w.Path, "", "admin")
			s.Found = w.Path
		}, onhost.Unchanged, false, false, false, 0},
		"has two accounts in its file": {func(_ *onhost.Request, s *onhost.Survey) {
			s.Rules.Content = onhost.Sudoers(place, "", "bob", "admin")
		}, onhost.Unchanged, false, false, false, 0},
	} {
		t.Run(name, func(t *testing.T) {
			w, s := wanted(), complete()
			tt.change(w, s)
			plan := proctest.Try(onhost.Decide(w, s)).OK(t)
			require.Equal(t, tt.result, plan.Result)
			require.Equal(t, tt.program, plan.Program)
			require.Equal(t, tt.sudoers, plan.Sudoers, plan.Rules)
			require.Equal(t, tt.shims, plan.Shims)
			require.Equal(t, name == "has the file of an earlier version", plan.Earlier)
			require.Equal(t, plan.Earlier, strings.Contains(plan.Rules, "\nbob ALL="))
			require.Len(t, plan.Notes, tt.notes)
			require.Equal(t, len(s.SSHRefuses) > 0, strings.Contains(strings.Join(plan.Notes, "\n"), "sshd refuses logins of admin: add it to AllowUsers"))
			require.False(t, len(s.SSHRefuses) > 0 && strings.Contains(strings.Join(plan.Notes, "\n"), "may log in"))
		})
	}
}

// TestDecideRefuses: hosts that can't take it; see also TestFaults, TestPlaces and TestAccounts.
func TestDecideRefuses(t *testing.T) {
	for want, change := range map[string]func(*onhost.Request, *onhost.Survey){
		"/usr/bin/genv belongs to the package genv": func(_ *onhost.Request, s *onhost.Survey) {
			s.Found, s.Packaged, s.Package = "/usr/bin/genv", "/usr/bin/genv", "genv"
		},
		"is another genv: version v1, sha256 ?": func(_ *onhost.Request, s *onhost.Survey) { s.Sum = "?" },
		"has no account \"Ann Lee\"": func(w *onhost.Request, s *onhost.Survey) {
			w.Key, w.Account, s.Rules.Content, s.AccountUID = "ssh-ed25519 AAAA", "Ann Lee", "", ""
		},
		"there is no /etc/sudoers.d": func(_ *onhost.Request, s *onhost.Survey) { s.Rules.Content, s.RulesFolder = "", false },
		"may change what is in /etc/sudoers.d": func(_ *onhost.Request, s *onhost.Survey) {
			s.Rules.Content, s.RulesUnsafe = "", &onhost.Folder{Path: "/etc/sudoers.d"}
		},
		"/etc/sudoers.d/zz-genv is a symbolic link": func(_ *onhost.Request, s *onhost.Survey) { s.Rules.Link = true },
	} {
		t.Run(want, func(t *testing.T) {
			w, s := wanted(), complete()
			change(w, s)
			_, err := onhost.Decide(w, s)
			require.ErrorContains(t, err, want)
			require.NotEmpty(t, remote.NextStepOf(err))
		})
	}
}

// TestDecideState: root owns the state of new hosts, and an upgrade never changes who owns it.
func TestDecideState(t *testing.T) {
	fresh := func(s *onhost.Survey) { s.Sum, s.Systemd = "", true }
	owned := func(s *onhost.Survey) { s.Systemd, s.Owned, s.Unit, s.Stale = true, true, true, true }
	for name, tt := range map[string]struct {
		wanted string
		change func(*onhost.Survey)
		state  string
		units  bool
		notes  int
	}{
		"a new host":                         {"", fresh, onhost.StateRoot, true, 1},
		"a new host without systemd":         {"", func(s *onhost.Survey) { s.Sum, s.NotNew = "", "it doesn't run systemd" }, "", false, 1},
		"a new host that is to be shared":    {onhost.StateShared, fresh, "", false, 0},
		"a host with state":                  {"", func(s *onhost.Survey) { fresh(s); s.NotNew = "it has a state folder, /x" }, "", false, 1},
		"the same, which is to be shared":    {onhost.StateShared, func(s *onhost.Survey) { fresh(s); s.NotNew = "it has a state folder, /x" }, "", false, 0},
		"the same, which is root's":          {"", func(s *onhost.Survey) { fresh(s); s.NotNew, s.Owned = "it has a state folder, /x", true }, "", false, 0},
		"a host without GPUs":                {"", func(s *onhost.Survey) { fresh(s); s.NotNew = "it has no driver" }, "", false, 1},
		"a host with genv 1.4.3":             {"", func(s *onhost.Survey) { fresh(s); s.NotNew = "it has genv 1.4.3, /x" }, "", false, 1},
		"the same, and root is to own it":    {onhost.StateRoot, func(s *onhost.Survey) { fresh(s); s.NotNew = "it has genv 1.4.3, /x" }, onhost.StateRoot, true, 1},
		"an upgrade of shared state":         {"", func(s *onhost.Survey) { s.Systemd, s.Sum = true, sumA }, "", false, 0},
		"an upgrade of root's state":         {"", func(s *onhost.Survey) { owned(s); s.Sum = sumA }, "", true, 0},
		"a unit that differs":                {"", owned, "", true, 0},
		"root's state is to be shared":       {onhost.StateShared, owned, onhost.StateShared, false, 1},
		"shared state is to be root's":       {onhost.StateRoot, func(s *onhost.Survey) { s.Systemd = true }, onhost.StateRoot, true, 1},
		"a service that was turned off":      {"", func(s *onhost.Survey) { owned(s); s.Owned = false; s.Sum = sumA }, "", true, 0},
		"a service that is to be root's now": {onhost.StateRoot, func(s *onhost.Survey) { owned(s); s.Owned = false }, onhost.StateRoot, true, 1},
	} {
		t.Run(name, func(t *testing.T) {
			w, s := wanted(), complete()
			w.State, w.Upgrade = tt.wanted, true
			tt.change(s)
			plan := proctest.Try(onhost.Decide(w, s)).OK(t)
			require.Equal(t, tt.state, plan.State)
			require.Equal(t, tt.units, plan.Units)
			require.Len(t, plan.Notes, tt.notes, "%q", plan.Notes)
			require.Equal(t, tt.state == "" && !tt.units && s.Sum == sumB, plan.Result == onhost.Unchanged)
		})
	}
	w := wanted()
	w.State = onhost.StateRoot
	require.ErrorContains(t, proctest.Try(onhost.Decide(w, complete())).Err, "needs systemd")
}
