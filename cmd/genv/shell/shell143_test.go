package shell_test

import (
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/seed-3119e985/genv/cmd/genv/shell"
	"github.com/seed-3119e985/genv/snapshot"
)

func shell143(environ map[string]string) shell.Shell143 {
	return shell.Shell143{Environ: func(name string) string { return environ[name] }, Shims: "/opt/shims"}
}

// What the user had before comes back, unless 1.4.3 has replaced it by a value of its own.
func TestWhatDeactivationGivesBackInAShellOf143(t *testing.T) {
	for name, tt := range map[string]struct{ set, backups, want string }{
		"the user's own":                {"PATH:CUDA_VISIBLE_DEVICES", "PATH:CUDA_VISIBLE_DEVICES", "export CUDA_VISIBLE_DEVICES='old'\n"},
		"none before":                   {"PATH:CUDA_VISIBLE_DEVICES", "PATH", "unset CUDA_VISIBLE_DEVICES\n"},
		"1.4.3's, after an attach":      {"PATH:CUDA_VISIBLE_DEVICES:CUDA_VISIBLE_DEVICES", "PATH:CUDA_VISIBLE_DEVICES", "unset CUDA_VISIBLE_DEVICES\n"},
		"1.4.3's, over the user's":      {"CUDA_VISIBLE_DEVICES:PATH:CUDA_VISIBLE_DEVICES", "CUDA_VISIBLE_DEVICES:CUDA_VISIBLE_DEVICES", "unset CUDA_VISIBLE_DEVICES\n"},
		"no variable":                   {"CUDA_VISIBLE_DEVICES:a b:$(id):", "", "unset CUDA_VISIBLE_DEVICES\n"},
		"a list that the user has lost": {"", "", "unset CUDA_VISIBLE_DEVICES\n"},
	} {
		code, err := shell143(map[string]string{
			"GENV_ENVS": tt.set, "GENV_BACKUP_ENVS": tt.backups, "GENV_BACKUP_ENV_CUDA_VISIBLE_DEVICES": "old", "GENV_BACKUP_ENV_PATH": "/bin",
		}).Render(shell.Deactivate())
		require.NoError(t, err)
		require.Contains(t, code, tt.want, name)
		require.NotContains(t, code, "unset PATH", name)
		require.NotContains(t, code, "id", name)
		require.Equal(t, strings.Contains(tt.backups, "PATH"), strings.Contains(code, "export PATH='/bin'\n"), name)
	}
}

// A script without the function gets the variables, and no books.
func TestAScriptGetsItsVariables(t *testing.T) {
	code, err := shell143(nil).Render(shell.Update(shell.Active{EID: "7", Devices: []snapshot.DeviceIndex{1, 3}}))
	require.NoError(t, err)
	require.Equal(t, `export GENV_SHELL='1'
export GENV_ENVIRONMENT_ID='7'
export CUDA_DEVICE_ORDER='PCI_BUS_ID'
export CUDA_VISIBLE_DEVICES='1,3'
unset GENV_ENVIRONMENT_NAME
unset GENV_GPU_MEMORY
unset GENV_GPUS
`, code)
}

func TestNoCallerOf143(t *testing.T) {
	for _, pid := range []string{"", "0", "1", "-5", "x", "99999999999"} {
		_, err := shell143(nil).Caller(pid, nil)
		require.ErrorIs(t, err, shell.ErrNotInitialised, pid)
	}
}

var quoted = regexp.MustCompile(`'[^']*'|\\'|"\$\{PS1-\}"`)

// FuzzShell143: whatever the lists, the old values and the name hold, nothing of them is
// read by the shell but quoted.
func FuzzShell143(f *testing.F) {
	f.Add("GENV_SHELL:PATH:PS1", "PATH:PS1", "it's $(id)", true)
	f.Add("A:B;id:`id`:CUDA_VISIBLE_DEVICES", "A:-n x:CUDA_VISIBLE_DEVICES", "\n';id;'", false)
	f.Fuzz(func(t *testing.T, set, backups, value string, activate bool) {
		s := shell.Shell143{Shims: value, Environ: func(name string) string {
			return map[string]string{"GENV_ENVS": set, "GENV_BACKUP_ENVS": backups, "GENV_BACKUP_ENV_PATH": value, "PATH": value, "CUDA_VISIBLE_DEVICES": value, "GENV_BACKUP_ENV_PS1": value}[name]
		}}
		change := shell.Deactivate()
		if activate {
			change = shell.Activate(shell.Active{EID: "7", Config: snapshot.EnvConfig{Name: value}}, false)
		}
		code, err := s.Render(change)
		if err != nil {
			require.ErrorIs(t, err, shell.ErrUnquotable)
			return
		}
		require.Regexp(t, `^[A-Za-z0-9_= \n]*$`, quoted.ReplaceAllString(code, ""))
	})
}
