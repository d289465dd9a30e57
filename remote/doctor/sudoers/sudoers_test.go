package sudoers_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/seed-3119e985/genv/remote/doctor/sudoers"
)

const head = "Matching Defaults entries for admin on gpu-1:\n    env_reset, secure_path=/usr/local/sbin\\:/usr/local/bin\n\nUser admin may run the following commands on gpu-1:\n"

const genv = "/usr/local/bin/genv"

// narrow is what remote.SudoersLine allows, as sudo prints it.
const narrow = "    (root) NOPASSWD: " + genv + " usage snapshot, " + genv + " usage snapshot *, " + genv + " usage execute, " + genv + " usage serve *\n"

func TestAllows(t *testing.T) {
	serve := []string{"usage", "serve", "--token", "x"}
	for _, tt := range []struct {
		name, rules string
		args        []string
		want        sudoers.Answer
	}{
		{"the narrow line, serve", narrow, serve, sudoers.Allowed},
		{"snapshot without arguments", narrow, []string{"usage", "snapshot"}, sudoers.Allowed},
		{"snapshot with arguments", narrow, []string{"usage", "snapshot", "--type", "envs"}, sudoers.Allowed},
		{"execute", narrow, []string{"usage", "execute"}, sudoers.Allowed},
		{"execute takes no arguments", narrow, []string{"usage", "execute", "x"}, sudoers.Refused},
		{"nothing else", narrow, []string{"lock", "sh"}, sudoers.Refused},
		{"wrapped lines", "    (root) NOPASSWD: " + genv + " usage snapshot,\n        " + genv + " usage serve *\n", serve, sudoers.Allowed},
		{"as another user", "    (alice) NOPASSWD: ALL\n", serve, sudoers.Refused},
		{"all users", "    (ALL : ALL) NOPASSWD: ALL\n", serve, sudoers.Allowed},
		{"uid 0", "    (#0) NOPASSWD: " + genv + "\n", serve, sudoers.Allowed},
		{"all but root", "    (ALL, !root) NOPASSWD: ALL\n", serve, sudoers.Refused},
		{"with a password", "    (ALL) ALL\n", serve, sudoers.WithPassword},
		{"the last rule counts", "    (ALL) NOPASSWD: ALL\n    (root) PASSWD: " + genv + "\n", serve, sudoers.WithPassword},
		{"a refusal counts", "    (ALL) NOPASSWD: ALL, !" + genv + " usage serve *\n", serve, sudoers.Refused},
		{"a tag holds for what follows", "    (root) NOPASSWD: /bin/a, " + genv + "\n", serve, sudoers.Allowed},
		{"until another one", "    (root) NOPASSWD: /bin/a, PASSWD: " + genv + "\n", serve, sudoers.WithPassword},
		{"several tags", "    (root) SETENV: NOPASSWD: " + genv + "\n", serve, sudoers.Allowed},
		{"an option", "    (root) TIMEOUT=5m NOPASSWD: " + genv + "\n", serve, sudoers.Allowed},
		{"a digest", "    (root) NOPASSWD: sha256:0123abcd " + genv + "\n", serve, sudoers.Allowed},
		{"a folder", "    (root) NOPASSWD: /usr/local/bin/\n", serve, sudoers.Allowed},
		{"another folder", "    (root) NOPASSWD: /usr/bin/\n", serve, sudoers.Refused},
		{"another path", "    (root) NOPASSWD: /usr/bin/genv\n", serve, sudoers.Refused},
		{"a wildcard in the path", "    (root) NOPASSWD: /usr/local/*/genv usage *\n", serve, sudoers.Allowed},
		{"which matches no slash", "    (root) NOPASSWD: /usr/*/genv\n", serve, sudoers.Refused},
		{"no arguments at all", "    (root) NOPASSWD: " + genv + " \"\"\n", serve, sudoers.Refused},
		{"a class", "    (root) NOPASSWD: " + genv + " usage [!a]erve *\n", serve, sudoers.Allowed},
		{"an escaped comma", "    (root) NOPASSWD: " + genv + " usage serve --token x\\,y\n", []string{"usage", "serve", "--token", "x,y"}, sudoers.Allowed},
		{"an expression", "    (root) NOPASSWD: " + genv + " ^usage (serve|snapshot) .*$\n", serve, sudoers.Allowed},
		{"a bad expression allows nothing", "    (root) NOPASSWD: " + genv + " ^usage ((.*$\n", serve, sudoers.Refused},
		{"and as a refusal refuses", "    (root) NOPASSWD: ALL, !" + genv + " ^usage ((.*$\n", serve, sudoers.Refused},
		{"no rules", "", serve, sudoers.Refused},
		{"noise", "Last login: today\n    ) NOPASSWD: ALL\n", serve, sudoers.Refused},
		{"sudoedit", "    (root) NOPASSWD: sudoedit /etc/motd\n", serve, sudoers.Refused},
	} {
		t.Run(tt.name, func(t *testing.T) {
			rules, err := sudoers.Parse(head + tt.rules)
			require.NoError(t, err)
			require.Equal(t, tt.want, rules.Allows(genv, tt.args...))
		})
	}
}

func TestParse(t *testing.T) {
	_, err := sudoers.Parse("Sorry, user x may not run sudo on y.\n")
	require.ErrorIs(t, err, sudoers.ErrFormat)
	rules, err := sudoers.Parse("Matching Defaults entries for a on b:\n    requiretty, env_reset\n\nUser a may run the following commands on b:\n" + narrow)
	require.NoError(t, err)
	require.True(t, rules.RequireTTY)
	rules, err = sudoers.Parse("Matching Defaults entries for a on b:\n    requiretty, env_reset, !requiretty\n\nUser a may run the following commands on b:\n" + narrow)
	require.NoError(t, err)
	require.False(t, rules.RequireTTY)
}

// FuzzParse: no output of sudo breaks it, and a rule for running as alice alone allows nothing as root.
func FuzzParse(f *testing.F) {
	f.Add(head + narrow)
	f.Add(head + "    (ALL : ALL) NOPASSWD: ALL, !/bin/x [a-z]* \\, y\n")
	f.Fuzz(func(t *testing.T, output string) {
		rules, err := sudoers.Parse(output)
		if err != nil {
			return
		}
		a := rules.Allows(genv, "usage", "serve")
		require.Contains(t, []sudoers.Answer{sudoers.Refused, sudoers.WithPassword, sudoers.Allowed}, a)
	})
}
