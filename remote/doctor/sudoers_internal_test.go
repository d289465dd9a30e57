package doctor

import (
	"testing"

	"github.com/stretchr/testify/require"
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
		want        sudoAnswer
	}{
		{"the narrow line, serve", narrow, serve, sudoAllowed},
		{"snapshot without arguments", narrow, []string{"usage", "snapshot"}, sudoAllowed},
		{"snapshot with arguments", narrow, []string{"usage", "snapshot", "--type", "envs"}, sudoAllowed},
		{"execute", narrow, []string{"usage", "execute"}, sudoAllowed},
		{"execute takes no arguments", narrow, []string{"usage", "execute", "x"}, sudoRefused},
		{"nothing else", narrow, []string{"lock", "sh"}, sudoRefused},
		{"wrapped lines", "    (root) NOPASSWD: " + genv + " usage snapshot,\n        " + genv + " usage serve *\n", serve, sudoAllowed},
		{"as another user", "    (alice) NOPASSWD: ALL\n", serve, sudoRefused},
		{"all users", "    (ALL : ALL) NOPASSWD: ALL\n", serve, sudoAllowed},
		{"uid 0", "    (#0) NOPASSWD: " + genv + "\n", serve, sudoAllowed},
		{"all but root", "    (ALL, !root) NOPASSWD: ALL\n", serve, sudoRefused},
		{"with a password", "    (ALL) ALL\n", serve, sudoWithPassword},
		{"the last rule counts", "    (ALL) NOPASSWD: ALL\n    (root) PASSWD: " + genv + "\n", serve, sudoWithPassword},
		{"a refusal counts", "    (ALL) NOPASSWD: ALL, !" + genv + " usage serve *\n", serve, sudoRefused},
		{"a tag holds for what follows", "    (root) NOPASSWD: /bin/a, " + genv + "\n", serve, sudoAllowed},
		{"until another one", "    (root) NOPASSWD: /bin/a, PASSWD: " + genv + "\n", serve, sudoWithPassword},
		{"several tags", "    (root) SETENV: NOPASSWD: " + genv + "\n", serve, sudoAllowed},
		{"an option", "    (root) TIMEOUT=5m NOPASSWD: " + genv + "\n", serve, sudoAllowed},
		{"a digest", "    (root) NOPASSWD: sha256:0123abcd " + genv + "\n", serve, sudoAllowed},
		{"a folder", "    (root) NOPASSWD: /usr/local/bin/\n", serve, sudoAllowed},
		{"another folder", "    (root) NOPASSWD: /usr/bin/\n", serve, sudoRefused},
		{"another path", "    (root) NOPASSWD: /usr/bin/genv\n", serve, sudoRefused},
		{"a wildcard in the path", "    (root) NOPASSWD: /usr/local/*/genv usage *\n", serve, sudoAllowed},
		{"which matches no slash", "    (root) NOPASSWD: /usr/*/genv\n", serve, sudoRefused},
		{"no arguments at all", "    (root) NOPASSWD: " + genv + " \"\"\n", serve, sudoRefused},
		{"a class", "    (root) NOPASSWD: " + genv + " usage [!a]erve *\n", serve, sudoAllowed},
		{"a wildcard in the arguments matches a slash", "    (root) NOPASSWD: " + genv + " usage serve*x\n", []string{"usage", "serve", "--path", "/a/x"}, sudoAllowed},
		{"an escaped comma", "    (root) NOPASSWD: " + genv + " usage serve --token x\\,y\n", []string{"usage", "serve", "--token", "x,y"}, sudoAllowed},
		{"an expression", "    (root) NOPASSWD: " + genv + " ^usage (serve|snapshot) .*$\n", serve, sudoAllowed},
		{"a bad expression allows nothing", "    (root) NOPASSWD: " + genv + " ^usage ((.*$\n", serve, sudoRefused},
		{"and as a refusal refuses", "    (root) NOPASSWD: ALL, !" + genv + " ^usage ((.*$\n", serve, sudoRefused},
		{"no rules", "", serve, sudoRefused},
		{"noise", "Last login: today\n    ) NOPASSWD: ALL\n", serve, sudoRefused},
		{"sudoedit", "    (root) NOPASSWD: sudoedit /etc/motd\n", serve, sudoRefused},
	} {
		t.Run(tt.name, func(t *testing.T) {
			rules, err := parseSudoers(head + tt.rules)
			require.NoError(t, err)
			require.Equal(t, tt.want, rules.allows(genv, tt.args...))
		})
	}
}

func TestParse(t *testing.T) {
	_, err := parseSudoers("Sorry, user x may not run sudo on y.\n")
	require.ErrorIs(t, err, errSudoFormat)
	rules, err := parseSudoers("Matching Defaults entries for a on b:\n    requiretty, env_reset\n\nUser a may run the following commands on b:\n" + narrow)
	require.NoError(t, err)
	require.True(t, rules.requireTTY)
	rules, err = parseSudoers("Matching Defaults entries for a on b:\n    requiretty, env_reset, !requiretty\n\nUser a may run the following commands on b:\n" + narrow)
	require.NoError(t, err)
	require.False(t, rules.requireTTY)
}

// FuzzParse: no output of sudo breaks it, and a rule for running as alice alone allows nothing as root.
func FuzzParse(f *testing.F) {
	f.Add(head + narrow)
	f.Add(head + "    (ALL : ALL) NOPASSWD: ALL, !/bin/x [a-z]* \\, y\n")
	f.Fuzz(func(t *testing.T, output string) {
		rules, err := parseSudoers(output)
		if err != nil {
			return
		}
		a := rules.allows(genv, "usage", "serve")
		require.Contains(t, []sudoAnswer{sudoRefused, sudoWithPassword, sudoAllowed}, a)
	})
}
