package config_test

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/seed-3119e985/genv/remote/sshclient/config"
)

// TestStaleEnvironment: what another user's shell left behind names neither the user
// nor the home folder.
func TestStaleEnvironment(t *testing.T) {
	needsSSH(t) // an account
	t.Setenv("USER", "mallory")
	t.Setenv("LOGNAME", "mallory")
	t.Setenv("HOME", t.TempDir())
	s, err := config.New(config.ResolverOptions{File: "none", SSH: "none"}).Resolve(t.Context(), config.Query{Host: "gpu"})
	require.NoError(t, err)
	require.NotEqual(t, "mallory", s.User)
	for _, file := range s.IdentityFiles {
		require.False(t, strings.HasPrefix(file, os.Getenv("HOME")), file)
	}
	require.Equal(t, strings.TrimSpace(output(t, "id", "-un")), s.User)
}

func output(t *testing.T, name string, args ...string) string {
	t.Helper()
	out, err := exec.Command(name, args...).Output()
	require.NoError(t, err)
	return string(out)
}

// TestUserThatOnlyNSSKnows has a getent that has an account for a uid that has none:
// the test runs itself as that uid.
func TestUserThatOnlyNSSKnows(t *testing.T) {
	const uid = 1<<31 - 11
	if os.Getenv("GENV_TEST_NSS") == "1" {
		s, err := config.New(config.ResolverOptions{File: "none", SSH: "none"}).Resolve(t.Context(), config.Query{Host: "gpu"})
		fmt.Printf("said: %q %q %v\n", s.User, s.IdentityFiles, err)
		return
	}
	if os.Getuid() != 0 {
		t.Skip("skipped: this test needs root to run a program as another uid")
	}
	dir := t.TempDir()
	program := filepath.Join(dir, "test")
	copyFile(t, "/proc/self/exe", program)
	getent := "#!/bin/sh\n[ \"$1 $3\" = \"passwd %d\" ] && echo 'ldap.alice:x:%d:1::/home/ldap.alice:/bin/sh'\n"
	require.NoError(t, os.WriteFile(filepath.Join(dir, "getent"), []byte(fmt.Sprintf(getent, uid, uid)), 0o755))
	for parent := dir; parent != "/"; parent = filepath.Dir(parent) {
		if strings.HasPrefix(parent, os.TempDir()+"/") {
			require.NoError(t, os.Chmod(parent, 0o755))
		}
	}
	for name, tt := range map[string]struct{ path, want string }{
		"known to getent": {dir + ":/usr/bin:/bin", `said: "ldap.alice" ["/home/ldap.alice/.ssh/id_rsa"`},
		"known to no one": {"/nonexistent", "there is no user name to log in with: this machine has no account for uid 2147483637"},
	} {
		t.Run(name, func(t *testing.T) {
			out := asUID(t, uid, program, "PATH="+tt.path, "USER=root", "HOME=/root", "GENV_TEST_NSS=1")
			require.Contains(t, out, tt.want)
			require.NotContains(t, out, "/root")
		})
	}
}

func copyFile(t *testing.T, from, to string) {
	t.Helper()
	content, err := os.ReadFile(from)
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(to, content, 0o755))
}

// asUID runs the test program's TestUserThatOnlyNSSKnows as a uid without an account.
func asUID(t *testing.T, uid uint32, program string, environ ...string) string {
	t.Helper()
	command := exec.Command(program, "-test.run=^TestUserThatOnlyNSSKnows$", "-test.v")
	command.Env, command.Dir = environ, "/"
	command.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: uid, Gid: uid}}
	out, err := command.CombinedOutput()
	require.NoError(t, err, "%s", out)
	return string(out)
}

func TestSpellingsOfAddresses(t *testing.T) {
	needsSSH(t)
	r := config.New(config.ResolverOptions{File: "none"})
	for text, want := range map[string]string{
		"127.1": "127.0.0.1", "1.2.3": "1.2.0.3", "0x7f000001": "127.0.0.1", "2130706433": "127.0.0.1", "010.0.0.1": "8.0.0.1", "0": "0.0.0.0",
		"::0:1": "::1", "FE80::1%lo": "fe80::1%lo", "::ffff:1.2.3.4": "::ffff:1.2.3.4",
		"256.1": "256.1", "1.2.3.4.5": "1.2.3.4.5", "1.256.1": "1.256.1", "4294967296": "4294967296", "1.2.3.256": "1.2.3.256", "1.": "1.", "08.1": "08.1", "0x.1": "0x.1",
		"gpu": "gpu", "1a": "1a",
	} {
		s, err := r.Resolve(t.Context(), config.Query{Host: "gpu", HostName: text})
		require.NoError(t, err)
		require.Equal(t, want, s.HostName, text)
	}
}
