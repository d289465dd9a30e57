package main

import (
	"archive/tar"
	"compress/gzip"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/seed-3119e985/genv/remote/testfleet/sshd"
)

// unpacked are the files of a bundle, one after the other.
func unpacked(t *testing.T, path string) string {
	file, err := os.Open(path)
	require.NoError(t, err)
	defer file.Close()
	unzipped, err := gzip.NewReader(file)
	require.NoError(t, err)
	var b strings.Builder
	for r := tar.NewReader(unzipped); ; {
		header, err := r.Next()
		if errors.Is(err, io.EOF) {
			return b.String()
		}
		require.NoError(t, err)
		fmt.Fprintln(&b, header.Name)
		_, err = io.Copy(&b, r)
		require.NoError(t, err)
	}
}

// TestBundleHasNoSecrets plants a secret wherever the bundle gets something from: keys,
// ssh_config, inventory, policy, environment, journal, and what a host says.
func TestBundleHasNoSecrets(t *testing.T) {
	f := sshd.Start(t, sshd.Options{Genv: genvProgram(t), Hosts: sshd.Named("well", "talks")})
	dir := t.TempDir()
	write := func(name, text string, mode os.FileMode) string {
		path := filepath.Join(dir, name)
		require.NoError(t, os.WriteFile(path, []byte(text), mode))
		return path
	}
	const secret = "hunter2"
	document := `{"schema":"genv.doctor/1","genv":{"version":"password=hunter2","protocol":1},"checks":[` +
		`{"name":"driver","status":"failed","cause":"x","detail":"token: hunter2","next_step":"hunter2"},{"name":"disk","status":"ok","detail":"https://u:hunter2@h/hunter2"}]}`
	talks := filepath.Join(f.Dir, "bin", "talks")
	require.NoError(t, os.WriteFile(talks, []byte("#!/bin/sh\necho '"+document+"'\n"), 0o755))
	hosts := write("hosts.yaml", "hosts:\n  - name: well\n    labels: {owner: hunter2}\n  - {name: talks, genv: "+talks+"}\n  - proxied\n", 0o600)
	policy := write("policy.yaml", "hooks:\n  - webhook: https://chat.example.org/hunter2\n  - command: [/bin/x, hunter2]\n", 0o600)
	config, err := os.ReadFile(f.SSHConfig())
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(f.SSHConfig(), append([]byte("Host proxied\n\tProxyCommand /bin/false --with hunter2\n"), config...), 0o600))
	write("journalctl", "#!/bin/sh\necho 'genv-host: started'; echo 'run with API_KEY=hunter2'; echo 'webhook=https://x/hunter2'\n", 0o755)
	t.Setenv("PATH", dir+":"+os.Getenv("PATH"))
	t.Setenv("GENV_PLANTED", secret)

	path := filepath.Join(dir, "report.tar.gz")
	line := []string{"remote", "doctor", "-F", f.SSHConfig(), "-H", hosts, "--bundle", path, "--policy", policy}
	r := genv(t, line...)
	require.Equal(t, 3, r.code, r.err)
	info, err := os.Stat(path)
	require.NoError(t, err)
	require.Equal(t, os.FileMode(0o600), info.Mode())
	text := unpacked(t, path)
	require.NotContains(t, text, secret)
	key, err := os.ReadFile(f.ClientKey())
	require.NoError(t, err)
	for _, part := range strings.Fields(string(key))[4:] {
		require.NotContains(t, text, part)
	}
	for _, part := range []string{
		"genv-bundle/doctor.json", "genv-bundle/hosts.json", "genv-bundle/ssh.json", "genv-bundle/policy.yaml", "genv-bundle/journal.txt",
		"genv-host: started", `"/bin/false"`, "GENV_PLANTED", `"owner"`, filepath.Base(f.ClientKey()), `"genv.remote.doctor/1"`, "go1.",
	} {
		require.Contains(t, text, part)
	}

	r = genv(t, line...)
	require.Equal(t, 1, r.code)
	require.Contains(t, r.err, "exists already")
	require.Empty(t, r.out, "no host was asked")
	r = genv(t, "doctor", "--bundle", filepath.Join(dir, "here.tar.gz"))
	require.NotEqual(t, 1, r.code, r.err)
	require.NotContains(t, unpacked(t, filepath.Join(dir, "here.tar.gz")), secret)
}
