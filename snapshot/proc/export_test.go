package proc

import (
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/seed-3119e985/genv/snapshot"
	"github.com/seed-3119e985/genv/snapshot/proc/proctest"
)

// Later moves the stalls that are known into the past.
func (r *ReaderProcess) Later(by time.Duration) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for key, s := range r.stalled {
		s.at = s.at.Add(-by)
		r.stalled[key] = s
	}
}

// FindHolder finds the holder of a lock in the text of /proc/locks.
func FindHolder(locks string, dev, ino uint64) int {
	return int(findHolder(locks, &unix.Stat_t{Dev: dev, Ino: ino}))
}

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

// TestQuotas: each account has one, and the person as whom this runs a larger one.
func TestQuotas(t *testing.T) {
	quotas, self := Quotas{}, snapshot.UID(os.Geteuid())
	other := quotas.Of(QuotaKey{UID: self + 1})
	require.Same(t, other, quotas.Of(QuotaKey{UID: self + 1}))
	require.NotSame(t, other, quotas.Of(QuotaKey{UID: self + 1, Container: "c"}))
	require.Equal(t, maxReadTime, other.left(maxReadTime))
	require.Equal(t, maxReadTime, quotas.Of(QuotaKey{}).left(maxReadTime), "root's may be anybody's")
	if self != 0 {
		require.Equal(t, 10*maxReadTime, quotas.Of(QuotaKey{UID: self}).left(maxReadTime))
	}
	other.spent = time.Hour
	require.Zero(t, other.left(maxNodeTime))
	require.Equal(t, time.Second, (*Quota)(nil).left(time.Second))
}
