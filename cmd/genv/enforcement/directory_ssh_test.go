package enforcement_test

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/seed-3119e985/genv/cmd/genv/genvtest"
	"github.com/seed-3119e985/genv/remote/testfleet"
	"github.com/seed-3119e985/genv/remote/testfleet/sshd"
)

// TestNamesOfADirectory: the controller logs in as ann@corp.example, whom sudoers knows by the uid
// alone, and CORP\dana is named in a policy, in an exemption and in what is reported.
func TestNamesOfADirectory(t *testing.T) {
	f := sshd.Start(t, sshd.Options{Hosts: sshd.Named("gpu-01"), Genv: genvtest.Program(t)})
	dir := t.TempDir()
	enforce := func(policy string) genvtest.Result {
		path := filepath.Join(dir, "policy.yaml")
		require.NoError(t, os.WriteFile(path, []byte("defaults: {non-env-processes: true, grace: 5s}\n"+policy), 0o600))
		return genvtest.Run(t, "remote", "-F", f.SSHConfig(), "-H", "ann@corp.example@gpu-01", "enforce", "--interval", "0", "--policy", path, "--state-dir", dir)
	}
	start := func(user string) *testfleet.Process {
		p, err := f.Host("gpu-01").StartJob(testfleet.Job{User: user, Env: genvtest.Outside, Uses: []testfleet.Use{{Device: 0, MiB: 10}}})
		require.NoError(t, err)
		return p
	}
	dana, bob := start(sshd.Dana), start("bob")
	r := enforce(`exempt: {users: ['CORP\dana']}` + "\n")
	require.Zero(t, r.Code, r.Err)
	require.False(t, bob.Running(), r.Out)
	require.True(t, dana.Running(), r.Out)

	made := exempted(t, "--state-dir", dir, "--user", sshd.Dana, "--for", "1h", "--reason", "deadline")
	require.Zero(t, enforce("").Code)
	require.True(t, dana.Running())

	exempted(t, "--state-dir", dir, "--revoke", made.Exemptions[0].ID)
	r = enforce("")
	require.False(t, dana.Running(), r.Out)
	require.Contains(t, r.Out, `(user "CORP\dana", sleep`)
}
