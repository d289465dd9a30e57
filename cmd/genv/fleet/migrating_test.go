package fleet_test

import (
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/seed-3119e985/genv/cmd/genv/genvtest"
	"github.com/seed-3119e985/genv/remote/testfleet"
	"github.com/seed-3119e985/genv/remote/testfleet/sshd"
	"github.com/seed-3119e985/genv/snapshot"
)

// TestTheCommandsOfMigrating: what docs/migrating.md has an administrator run on the jump
// host works on a fleet of which one host has moved.
func TestTheCommandsOfMigrating(t *testing.T) {
	text, err := os.ReadFile("../../../docs/migrating.md")
	require.NoError(t, err)
	hosts := sshd.Named("gpu-01", "gpu-02")
	hosts[1].Rights = sshd.MaySudo143
	f := sshd.Start(t, sshd.Options{Hosts: hosts, Genv: genvtest.Program(t)})
	for _, h := range f.Hosts() {
		_, err := h.Activate(testfleet.Environment{User: "alice", Config: snapshot.EnvConfig{Name: "my-env"}, Devices: []snapshot.DeviceIndex{0}})
		require.NoError(t, err)
	}
	var printed []string
	for line := range strings.Lines(string(text)) {
		words := strings.Fields(strings.ReplaceAll(line, "'", ""))
		if !strings.HasPrefix(line, "   ") || len(words) < 2 || words[0] != "genv" || words[1] != "remote" {
			continue
		}
		r := genvtest.Run(t, append([]string{"remote", "-F", f.SSHConfig()}, words[2:]...)...)
		require.Zero(t, r.Code, "%s%s", line, r.Err)
		printed = append(printed, r.Out)
	}
	require.Len(t, printed, 5)
	require.Contains(t, printed[0], "Total 16 devices with 14 available on 2 hosts")
	require.Contains(t, printed[1], "Total 2 environments on 2 hosts")
	require.Equal(t, 2, strings.Count(printed[2], "\n"), printed[2])
	require.Empty(t, printed[3], "alice keeps the rules")
	require.Contains(t, printed[4], `"via":{"gpu-01":"stream","gpu-02":"commands"}`)
}
