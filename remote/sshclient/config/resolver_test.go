package config_test

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/seed-3119e985/genv/remote/sshclient/config"
	"github.com/seed-3119e985/genv/snapshot/proc/proctest"
)

// home is a user's folder with the given ~/.ssh files, and a system file.
func home(t *testing.T, system string, files map[string]string) config.ResolverOptions {
	t.Helper()
	dir := t.TempDir()
	require.NoError(t, os.MkdirAll(filepath.Join(dir, ".ssh"), 0o700))
	for name, content := range files {
		require.NoError(t, os.WriteFile(filepath.Join(dir, ".ssh", name), []byte(content), 0o600))
	}
	file := filepath.Join(dir, "ssh_config")
	require.NoError(t, os.WriteFile(file, []byte(system), 0o644))
	return config.ResolverOptions{User: "tester", Home: dir, SystemFile: file, SSH: "none"}
}

func TestUserAndSystemFiles(t *testing.T) {
	o := home(t, "IdentityFile /sys\nPort 2222\nUser late\n", map[string]string{
		"config":   "Include more/*.conf other\nIdentityFile ~/mine\nUser early\n",
		"other":    "IdentityFile /other\n",
		".hidden":  "Port 1\n",
		"unneeded": "Port 2\n",
	})
	s := proctest.Try(config.New(o).Resolve(t.Context(), config.Lookup{Host: "gpu"})).OK(t)
	require.Equal(t, []string{"/other", o.Home + "/mine", "/sys"}, s.IdentityFiles, "gathered from all of them")
	require.Equal(t, "early", s.User)
	require.Equal(t, 2222, s.Port)
	require.Equal(t, o.Home+"/.ssh/known_hosts", s.UserKnownHosts[0])
}

func TestChangedFileIsReadAgain(t *testing.T) {
	o := home(t, "", map[string]string{"config": "Include extra\nPort 1001\n"})
	r := config.New(o)
	port := func() int {
		s := proctest.Try(r.Resolve(t.Context(), config.Lookup{Host: "gpu"})).OK(t)
		return s.Port
	}
	require.Equal(t, 1001, port())
	name := filepath.Join(o.Home, ".ssh", "config")
	require.NoError(t, os.WriteFile(name, []byte("Include extra\nPort 1002\n"), 0o600))
	require.NoError(t, os.Chtimes(name, time.Time{}, time.Now().Add(time.Minute)))
	require.Equal(t, 1002, port())
	require.NoError(t, os.WriteFile(filepath.Join(o.Home, ".ssh", "extra"), []byte("Port 1003\n"), 0o600))
	require.Equal(t, 1003, port(), "an included file that appears counts as well")
}

func TestUntrustedFiles(t *testing.T) {
	for name, change := range map[string]func(o *config.ResolverOptions){
		"others may write it": func(o *config.ResolverOptions) {
			require.NoError(t, os.Chmod(filepath.Join(o.Home, ".ssh", "config"), 0o666))
		},
		"-F names nothing":  func(o *config.ResolverOptions) { o.File = filepath.Join(o.Home, "absent") },
		"-F names a folder": func(o *config.ResolverOptions) { o.File = o.Home },
		"it includes itself": func(o *config.ResolverOptions) {
			require.NoError(t, os.WriteFile(filepath.Join(o.Home, ".ssh", "config"), []byte("Include config\n"), 0o600))
		},
	} {
		t.Run(name, func(t *testing.T) {
			o := home(t, "", map[string]string{"config": "Port 22\n"})
			change(&o)
			require.ErrorAs(t, proctest.Try(config.New(o).Resolve(t.Context(), config.Lookup{Host: "gpu"})).Err, new(*config.Error))
		})
	}
}

func TestNoFile(t *testing.T) {
	s := proctest.Try(resolve(t, config.ResolverOptions{File: "none", SSH: "none", User: "tester"})).OK(t)
	require.Equal(t, "gpu", s.HostName)
	require.Equal(t, 22, s.Port)
	require.False(t, s.AcceptNew)
}

func TestFallBackToOpenSSH(t *testing.T) {
	proctest.NeedSSH(t)
	file := write(t, "Match exec \"true\"\n Port 2345\nHost gpu\n ProxyCommand nc foo#bar %h\n")
	r := config.New(config.ResolverOptions{File: file})
	s := proctest.Try(r.Resolve(t.Context(), config.Lookup{Host: "gpu"})).OK(t)
	require.Equal(t, 2345, s.Port)
	require.Equal(t, "nc foo#bar gpu", s.ProxyCommand)

	file = write(t, "Host gpu\n\n  Prot 22\n")
	_, err := resolve(t, config.ResolverOptions{File: file})
	requirePlace(t, err, file, 3)
}

func TestInvalidNames(t *testing.T) {
	r := config.New(config.ResolverOptions{File: "none", SSH: "none", User: "tester"})
	for _, q := range []config.Lookup{
		{},
		{Host: "-oProxyCommand=id"},
		{Host: "a b"},
		{Host: "$(id)"},
		{Host: "a;id"},
		{Host: "a'b"},
		{Host: "a\nb"},
		{Host: "`id`"},
		{Host: "gpu", HostName: "-x"},
		{Host: "gpu", HostName: "a|b"},
		{Host: "gpu", User: "-l"},
		{Host: "gpu", User: "$(id)"},
		{Host: "gpu", User: "a;b"},
		{Host: "gpu", Port: -1},
		{Host: "gpu", Port: 65536},
	} {
		require.ErrorAs(t, proctest.Try(r.Resolve(t.Context(), q)).Err, new(*config.Error), "%+v", q)
	}
	for _, q := range []config.Lookup{
		{Host: "gpu-01.lab"}, {Host: "10.0.0.1"}, {Host: "fe80::1%eth0"}, {Host: "host_1"}, {Host: "gpu", User: "alice.b-c_d"}, {Host: "münchen"},
	} {
		proctest.Try(r.Resolve(t.Context(), q)).OK(t, "%+v", q)
	}
}

func TestParseHop(t *testing.T) {
	for item, want := range map[string]config.Lookup{
		"bastion":            {Host: "bastion"},
		"u@bastion:2222":     {Host: "bastion", User: "u", Port: 2222},
		"a@b@bastion":        {Host: "bastion", User: "a@b"},
		"[::1]:2222":         {Host: "::1", Port: 2222},
		"::1":                {Host: "::1"},
		"ssh://u@bastion:22": {Host: "bastion", User: "u", Port: 22},
		"ssh://bastion/":     {Host: "bastion"},
	} {
		require.Equal(t, want, proctest.Try(config.ParseHop(item)).OK(t, item), item)
	}
	for _, item := range []string{"", "u@", "b:", "b:x", "b:0", "b:70000", "-b", "[::1", "a b", "ssh://"} {
		require.Error(t, proctest.Try(config.ParseHop(item)).Err, item)
	}
}

// FuzzEvaluate: no text makes the reader fail otherwise than by an *Error.
func FuzzEvaluate(f *testing.F) {
	for _, text := range agreed {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		s, err := resolve(t, config.ResolverOptions{File: write(t, text), SSH: "none", User: "tester"})
		if err != nil {
			require.ErrorAs(t, err, new(*config.Error))
			return
		}
		require.NotEmpty(t, s.HostName)
		require.Positive(t, s.Port)
	})
}

// TestStaleEnvironment: what another user's shell left behind names neither the user nor the home folder.
func TestStaleEnvironment(t *testing.T) {
	proctest.NeedSSH(t) // an account
	t.Setenv("USER", "mallory")
	t.Setenv("LOGNAME", "mallory")
	t.Setenv("HOME", t.TempDir())
	s := proctest.Try(resolve(t, config.ResolverOptions{File: "none", SSH: "none"})).OK(t)
	require.NotEqual(t, "mallory", s.User)
	for _, file := range s.IdentityFiles {
		require.False(t, strings.HasPrefix(file, os.Getenv("HOME")), file)
	}
	require.Equal(t, strings.TrimSpace(string(proctest.Try(exec.Command("id", "-un").Output()).OK(t))), s.User)
}

// TestUserThatOnlyNSSKnows has a getent that has an account for a uid that has none: the test runs itself as that uid.
func TestUserThatOnlyNSSKnows(t *testing.T) {
	const uid = 1<<31 - 11
	if os.Getenv("GENV_TEST_NSS") == "1" {
		s, err := resolve(t, config.ResolverOptions{File: "none", SSH: "none"})
		fmt.Printf("said: %q %q %v\n", s.User, s.IdentityFiles, err)
		return
	}
	proctest.NeedRoot(t)
	dir := proctest.PublicDir(t, 0o755)
	program := filepath.Join(dir, "test")
	require.NoError(t, proctest.WriteProgram(program, proctest.ReadFile(t, "/proc/self/exe")))
	getent := "#!/bin/sh\n[ \"$1 $3\" = \"passwd %d\" ] && echo 'ldap.alice:x:%d:1::/home/ldap.alice:/bin/sh'\n"
	require.NoError(t, proctest.WriteProgram(filepath.Join(dir, "getent"), []byte(fmt.Sprintf(getent, uid, uid))))
	for name, tt := range map[string]struct{ path, want string }{
		"known to getent": {dir + ":/usr/bin:/bin", `said: "ldap.alice" ["/home/ldap.alice/.ssh/id_rsa"`},
		"known to no one": {"/nonexistent", "there is no user name to log in with: this machine has no account for uid 2147483637"},
	} {
		t.Run(name, func(t *testing.T) {
			command := exec.Command(program, "-test.run=^TestUserThatOnlyNSSKnows$", "-test.v")
			command.Env, command.Dir = []string{"PATH=" + tt.path, "USER=root", "HOME=/root", "GENV_TEST_NSS=1"}, "/"
			command.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: uid, Gid: uid}}
			out := proctest.Output(t, command)
			require.Contains(t, out, tt.want)
			require.NotContains(t, out, "/root")
		})
	}
}

func TestSpellingsOfAddresses(t *testing.T) {
	proctest.NeedSSH(t)
	r := config.New(config.ResolverOptions{File: "none"})
	for text, want := range map[string]string{
		"127.1": "127.0.0.1", "1.2.3": "1.2.0.3", "0x7f000001": "127.0.0.1", "2130706433": "127.0.0.1", "010.0.0.1": "8.0.0.1", "0": "0.0.0.0",
		"::0:1": "::1", "FE80::1%lo": "fe80::1%lo", "::ffff:1.2.3.4": "::ffff:1.2.3.4",
		"256.1": "256.1", "1.2.3.4.5": "1.2.3.4.5", "1.256.1": "1.256.1", "4294967296": "4294967296", "1.2.3.256": "1.2.3.256", "1.": "1.", "08.1": "08.1", "0x.1": "0x.1",
		"gpu": "gpu", "1a": "1a",
	} {
		s := proctest.Try(r.Resolve(t.Context(), config.Lookup{Host: "gpu", HostName: text})).OK(t)
		require.Equal(t, want, s.HostName, text)
	}
}

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func write(t testing.TB, content string) string {
	t.Helper()
	name := filepath.Join(t.TempDir(), "config")
	require.NoError(t, os.WriteFile(name, []byte(content), 0o600))
	return name
}

// bySSH resolves a query by ssh alone, which a Match line is left to.
func bySSH(t testing.TB, file string, q config.Lookup) (config.HostConfig, error) {
	t.Helper()
	text := proctest.ReadText(t, file)
	return config.New(config.ResolverOptions{File: write(t, text+"\nMatch all\n")}).Resolve(t.Context(), q)
}

// resolve resolves the host gpu.
func resolve(t testing.TB, o config.ResolverOptions) (config.HostConfig, error) {
	t.Helper()
	return config.New(o).Resolve(t.Context(), config.Lookup{Host: "gpu"})
}

// requirePlace fails unless err names this line of the file as the wrong one. It returns what is wrong.
func requirePlace(t testing.TB, err error, file string, line int) string {
	t.Helper()
	var e *config.Error
	require.ErrorAs(t, err, &e)
	require.Equal(t, file, e.File, "%v", err)
	require.Equal(t, line, e.Line, "%v", err)
	return e.Problem
}

// both resolves a query by the local reader alone and by ssh alone.
func both(t testing.TB, file string, q config.Lookup) (local, openssh config.HostConfig, localErr, opensshErr error) {
	t.Helper()
	local, localErr = config.New(config.ResolverOptions{File: file, SSH: "none"}).Resolve(t.Context(), q)
	openssh, opensshErr = bySSH(t, file, q)
	return withoutRareDefaults(local), withoutRareDefaults(openssh), localErr, opensshErr
}

// withoutRareDefaults leaves out the default keys and algorithms that only some
// versions of ssh list, and the order of ciphers, which OpenSSH 10 has changed.
func withoutRareDefaults(s config.HostConfig) config.HostConfig {
	var kept []string
	for _, name := range s.IdentityFiles {
		if !strings.HasSuffix(name, "/.ssh/id_xmss") && !strings.HasSuffix(name, "/.ssh/id_dsa") {
			kept = append(kept, name)
		}
	}
	s.IdentityFiles = kept
	for i, item := range s.ProxyJump { // ssh writes addresses in brackets
		if hop, err := config.ParseHop(item); err == nil {
			s.ProxyJump[i] = fmt.Sprint(hop)
		}
	}
	rare := func(name string) bool { return name == "mlkem768x25519-sha256" || strings.HasPrefix(name, "ssh-dss") }
	for _, names := range []*[]string{&s.KexAlgorithms, &s.HostKeyAlgorithms, &s.PubkeyAcceptedAlgorithms, &s.CASignatureAlgorithms} {
		*names = slices.DeleteFunc(slices.Clone(*names), rare)
	}
	s.Ciphers = slices.Sorted(slices.Values(s.Ciphers))
	return s
}
