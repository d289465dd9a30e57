package proc

import (
	"os/exec"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/seed-3119e985/genv/snapshot/proc/proctest"
)

func TestHiding(t *testing.T) {
	const other = "36 35 98:0 / / rw - ext4 /dev/sda1 rw,hidepid=2\n40 35 0:50 / /srv/proc rw - proc proc rw,hidepid=2\n"
	for options, want := range map[string]Hiding{
		"rw":                          {},
		"rw,hidepid=0":                {},
		"rw,hidepid=off":              {},
		"rw,gid=5":                    {Group: "5"},
		"rw,hidepid=1":                {On: true},
		"rw,hidepid=2,gid=1001":       {On: true, Group: "1001"},
		"rw,gid=7,hidepid=invisible":  {On: true, Group: "7"},
		"rw,hidepid=noaccess":         {On: true},
		"rw,hidepid=ptraceable":       {On: true},
		"rw,hidepid=4,subset=pid":     {On: true},
		"rw,hidepid=of-a-kernel-of-2": {On: true},
	} {
		line := "23 28 0:21 / /proc rw,nosuid shared:13 - proc proc " + options + "\n"
		require.Equal(t, want, ParseHiding(other+line), options)
		require.Equal(t, Hiding{}, ParseHiding(line+other+"23 28 0:21 / /proc rw - proc proc rw\n"), "covered: %s", options)
	}
	require.Equal(t, Hiding{}, ParseHiding(other))
	require.True(t, FS{Root: t.TempDir()}.Hiding().On, "unknown")
}

// TestHidingOfTheKernel: the words of the kernel that runs here.
func TestHidingOfTheKernel(t *testing.T) {
	proctest.NeedRoot(t)
	proctest.NeedPrograms(t, "unshare", "mount")
	for _, options := range []string{"hidepid=0", "hidepid=1", "hidepid=2,gid=4", "hidepid=4"} {
		out, err := exec.CommandContext(t.Context(), "unshare", "--mount", "--pid", "--fork", "sh", "-c",
			`mount -t proc -o "$0" proc /proc && cat /proc/self/mountinfo`, options).CombinedOutput()
		if err != nil && options != "hidepid=4" { // since Linux 5.8
			t.Skipf("no /proc can be mounted here: %s", out)
		}
		if err == nil {
			h := ParseHiding(string(out))
			require.Equal(t, options != "hidepid=0", h.On, "%s: %s", options, out)
			require.Equal(t, strings.Contains(options, "gid=4"), h.Group == "4", options)
		}
	}
}
