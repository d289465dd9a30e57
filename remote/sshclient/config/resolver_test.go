package config_test

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-3119e985/genv/remote/sshclient/config"
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
	s, err := config.New(o).Resolve(t.Context(), config.Lookup{Host: "gpu"})
	require.NoError(t, err)
	require.Equal(t, []string{"/other", o.Home + "/mine", "/sys"}, s.IdentityFiles, "gathered from all of them")
	require.Equal(t, "early", s.User)
	require.Equal(t, 2222, s.Port)
	require.Equal(t, o.Home+"/.ssh/known_hosts", s.UserKnownHosts[0])
}

func TestChangedFileIsReadAgain(t *testing.T) {
	o := home(t, "", map[string]string{"config": "Include extra\nPort 1001\n"})
	r := config.New(o)
	port := func() int {
		s, err := r.Resolve(t.Context(), config.Lookup{Host: "gpu"})
		require.NoError(t, err)
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
			_, err := config.New(o).Resolve(t.Context(), config.Lookup{Host: "gpu"})
			require.ErrorAs(t, err, new(*config.Error))
		})
	}
}

func TestNoFile(t *testing.T) {
	s, err := config.New(config.ResolverOptions{File: "none", SSH: "none", User: "tester"}).Resolve(t.Context(), config.Lookup{Host: "gpu"})
	require.NoError(t, err)
	require.Equal(t, "gpu", s.HostName)
	require.Equal(t, 22, s.Port)
	require.False(t, s.AcceptNew)
}

func TestFallBackToOpenSSH(t *testing.T) {
	needsSSH(t)
	file := write(t, "Match exec \"true\"\n Port 2345\nHost gpu\n ProxyCommand nc foo#bar %h\n")
	r := config.New(config.ResolverOptions{File: file})
	s, err := r.Resolve(t.Context(), config.Lookup{Host: "gpu"})
	require.NoError(t, err)
	require.Equal(t, 2345, s.Port)
	require.Equal(t, "nc foo#bar gpu", s.ProxyCommand)

	file = write(t, "Host gpu\n\n  Prot 22\n")
	_, err = config.New(config.ResolverOptions{File: file}).Resolve(t.Context(), config.Lookup{Host: "gpu"})
	var e *config.Error
	require.ErrorAs(t, err, &e)
	require.Equal(t, file, e.File, "%v", err)
	require.Equal(t, 3, e.Line, "%v", err)
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
		_, err := r.Resolve(t.Context(), q)
		require.ErrorAs(t, err, new(*config.Error), "%+v", q)
	}
	for _, q := range []config.Lookup{
		{Host: "gpu-01.lab"}, {Host: "10.0.0.1"}, {Host: "fe80::1%eth0"}, {Host: "host_1"}, {Host: "gpu", User: "alice.b-c_d"}, {Host: "münchen"},
	} {
		_, err := r.Resolve(t.Context(), q)
		require.NoError(t, err, "%+v", q)
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
		got, err := config.ParseHop(item)
		require.NoError(t, err, item)
		require.Equal(t, want, got, item)
	}
	for _, item := range []string{"", "u@", "b:", "b:x", "b:0", "b:70000", "-b", "[::1", "a b", "ssh://"} {
		_, err := config.ParseHop(item)
		require.Error(t, err, item)
	}
}

// FuzzEvaluate: no text makes the reader fail otherwise than by an *Error.
func FuzzEvaluate(f *testing.F) {
	for _, text := range agreed {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		s, err := config.New(config.ResolverOptions{File: write(t, text), SSH: "none", User: "tester"}).Resolve(t.Context(), config.Lookup{Host: "gpu"})
		if err != nil {
			require.ErrorAs(t, err, new(*config.Error))
			return
		}
		require.NotEmpty(t, s.HostName)
		require.Positive(t, s.Port)
	})
}
