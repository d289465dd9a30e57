package nvidiasmi_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/seed-3119e985/genv/snapshot/nvidiasmi"
)

func TestParseModes(t *testing.T) {
	on, off := true, false
	for _, tt := range []struct {
		name, output string
		want         []nvidiasmi.Mode
	}{
		{"none", "", nil},
		{"enabled and disabled", "0, Enabled, 550.163.01\n1, Disabled, 550.163.01\n", []nvidiasmi.Mode{
			{Index: 0, Persistence: &on, Driver: "550.163.01"}, {Index: 1, Persistence: &off, Driver: "550.163.01"},
		}},
		{"not reported", "3, [N/A], [N/A]\r\n", []nvidiasmi.Mode{{Index: 3}}},
		{"another word is not known", "3, Maybe, 470.1\n", []nvidiasmi.Mode{{Index: 3, Driver: "470.1"}}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			modes, err := nvidiasmi.ParseModes([]byte(tt.output))
			require.NoError(t, err)
			require.Equal(t, tt.want, modes)
		})
	}
	for _, garbled := range []string{"No devices\n", "x, Enabled, 1\n", "-1, Enabled, 1\n", "99999, Enabled, 1\n", "0, Enabled\n", "0, Enabled, \x1b[2J\n"} {
		_, err := nvidiasmi.ParseModes([]byte(garbled))
		require.ErrorIs(t, err, nvidiasmi.ErrGarbled, garbled)
	}
}

func FuzzParseModes(f *testing.F) {
	f.Add([]byte("0, Enabled, 550.163.01\n1, Disabled, 550.163.01\n"))
	f.Fuzz(func(t *testing.T, data []byte) {
		modes, err := nvidiasmi.ParseModes(data)
		if err != nil {
			require.ErrorIs(t, err, nvidiasmi.ErrGarbled)
			require.Nil(t, modes)
		}
		for _, m := range modes {
			require.GreaterOrEqual(t, int(m.Index), 0)
		}
	})
}
