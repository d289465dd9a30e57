package user_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/seed-3119e985/genv/cmd/genv/configfile"
	"github.com/seed-3119e985/genv/cmd/genv/genvtest"
)

// Commands of people and of controllers on GPU hosts read no configuration.
func TestWhoReadsNoConfiguration(t *testing.T) {
	s := newStation(t)
	dir := genvtest.Configure(t, configfile.Config, "not: [yaml")
	u := s.me().with("GENV_CONFIG_DIR=" + dir)
	for _, line := range []string{"version", "devices", "envs", "gpus", "status", "usage snapshot", "usage snapshot --type devices", "history", "home", "monitor --help"} {
		out, err := u.command(append([]string{"genv"}, strings.Fields(line)...)...).CombinedOutput()
		require.NotContains(t, string(out), "config.yaml", line)
		require.True(t, err == nil || line == "status" || line == "home", "%s: %s", line, out)
	}
	for _, line := range []string{"remote gpus -H a", "enforce --interval 0", "policy explain"} {
		out, err := u.command(append([]string{"genv"}, strings.Fields(line)...)...).CombinedOutput()
		require.Error(t, err)
		require.Contains(t, string(out), "config.yaml:1:6", line)
	}
}
