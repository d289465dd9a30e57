package shell_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/seed-3119e985/genv/cmd/genv/shell"
	"github.com/seed-3119e985/genv/snapshot"
)

func TestRenderedActivation(t *testing.T) {
	a := shell.Active{EID: "1667", Config: snapshot.EnvConfig{Name: "it's"}}
	code, err := shell.Activate(a, false).Render()
	require.NoError(t, err)
	require.Equal(t, `__genv_set GENV_SHELL '1'
__genv_set GENV_ENVIRONMENT_ID '1667'
__genv_set GENV_ENVIRONMENT_NAME 'it'\''s'
__genv_set CUDA_DEVICE_ORDER 'PCI_BUS_ID'
__genv_set CUDA_VISIBLE_DEVICES '-1'
__genv_unset GENV_GPU_MEMORY
__genv_unset GENV_GPUS
__genv_path_add PATH
__genv_prompt PS1 '(genv:it?s) '
`, code)
}

func TestTheZeroChangeDoesNothing(t *testing.T) {
	code, err := shell.Change{}.Render()
	require.NoError(t, err)
	require.Empty(t, code)
}

func TestVisibleDevices(t *testing.T) {
	for want, active := range map[string]shell.Active{
		"-1":          {},
		"0,1,6":       {Devices: []snapshot.DeviceIndex{0, 1, 6}},
		"GPU-f,GPU-a": {Devices: []snapshot.DeviceIndex{5, 0}, UUIDs: []snapshot.GPUUUID{"GPU-f", "GPU-a"}},
	} {
		require.Equal(t, want, active.VisibleDevices())
	}
}

func TestNoCallerWithoutAnInitialisedShell(t *testing.T) {
	for _, environ := range []map[string]string{
		nil,
		{"GENV_SHELL": "1"},
		{"GENV_SHELL_KIND": "bash", "GENV_SHELL_PID": "77", "GENV_SHELL_FD": "1"},
		{"GENV_SHELL_KIND": "bash", "GENV_SHELL_PID": "1", "GENV_SHELL_FD": "3"},
		{"GENV_SHELL_KIND": "bash", "GENV_SHELL_PID": "77", "GENV_SHELL_FD": "60000"}, // closed
		{"GENV_SHELL_KIND": "fish", "GENV_SHELL_PID": "77", "GENV_SHELL_FD": "3"},
	} {
		_, err := shell.CallerFrom(func(name string) string { return environ[name] })
		require.ErrorIs(t, err, shell.ErrNotInitialised, environ)
	}
}
