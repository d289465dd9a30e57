package kernel

import (
	"errors"
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/seed-3119e985/genv/enforce/guard"
)

// able are the facts about a machine that lacks nothing.
func able() probedFacts {
	return probedFacts{
		options: Location{Dir: DefaultDir}, release: "6.18.44", lockdown: "none", pids: true,
		cgroup: cgroup{path: "/sys/fs/cgroup", id: rootID},
	}
}

func TestReportOfEachKernelAbility(t *testing.T) {
	for name, c := range map[string]struct {
		change func(*probedFacts)
		err    error  // class of the report
		row    string // the ability that says it
		says   string
	}{
		"able":           {func(*probedFacts) {}, nil, "programs and maps", "Linux 6.18.44"},
		"no BPF":         {func(f *probedFacts) { f.release, f.loadErr = "4.4.0", classify("create the map control", unix.ENOSYS) }, ErrUnsupported, "programs and maps", "this is Linux 4.4.0; Linux 5.8"},
		"no ring buffer": {func(f *probedFacts) { f.release, f.loadErr = "5.4.0", classify("create the map events", unix.EINVAL) }, ErrUnsupported, "programs and maps", "this is Linux 5.4.0; Linux 5.8"},
		"no link":        {func(f *probedFacts) { f.release, f.loadErr = "5.6.0", classify("attach", unix.EINVAL) }, ErrUnsupported, "programs and maps", "5.8"},
		"not root":       {func(f *probedFacts) { f.loadErr = classify("create the map control", unix.EPERM) }, ErrPermission, "programs and maps", "CAP_BPF"},
		"locked down": {func(f *probedFacts) {
			f.lockdown, f.loadErr = "confidentiality", classify("load the program", unix.EPERM)
		}, ErrPermission, "programs and maps", "locked down: confidentiality"},
		"locked down but able":     {func(f *probedFacts) { f.lockdown = "integrity" }, nil, "programs and maps", "Linux"},
		"memory is short":          {func(f *probedFacts) { f.loadErr = classify("create the map control", unix.ENOMEM) }, unix.ENOMEM, "programs and maps", "cannot allocate"},
		"cgroup v1 only":           {func(f *probedFacts) { _, f.cgroupErr = cgroup2Mount(v1Only) }, ErrUnsupported, "cgroup2", "only cgroup v1"},
		"in a container's cgroup":  {func(f *probedFacts) { f.cgroup.id = 77 }, nil, "cgroup2", "not the machine's root cgroup"},
		"a folder that was chosen": {func(f *probedFacts) { f.cgroup.id, f.options.Cgroup = 77, f.cgroup.path }, nil, "cgroup2", "/sys/fs/cgroup"},
		"no bpffs":                 {func(f *probedFacts) { f.bpffsErr = fmt.Errorf("%w at /sys/fs/bpf", ErrNoBPFFS) }, nil, "pins", "ends with its process"},
		"a bpffs out of reach":     {func(f *probedFacts) { f.bpffsErr = classify("look at /sys/fs/bpf", unix.EACCES) }, ErrPermission, "pins", "permission"},
		"no bpffs, unpinned":       {func(f *probedFacts) { f.options.Unpinned, f.bpffsErr = true, ErrNoBPFFS }, nil, "pins", "no bpffs"},
		"no PIDs":                  {func(f *probedFacts) { f.release, f.pids = "5.15.0", false }, nil, "PIDs in events", "not reported by Linux 5.15.0 (6.1 does)"},
		"another program":          {func(f *probedFacts) { f.programs = []Program{{ID: 7}} }, nil, "room in the cgroup", "next to another program"},
		"other programs":           {func(f *probedFacts) { f.programs = []Program{{ID: 7}, {ID: 8}} }, nil, "room in the cgroup", "next to 2 other programs"},
		"held": {func(f *probedFacts) {
			f.programs = []Program{{ID: 7, Name: "sd_devices", Cgroup: "/x", Exclusive: true}}
		}, ErrConflict, "room in the cgroup", "program 7 (sd_devices) at /x"},
		"unknown programs": {func(f *probedFacts) { f.programsErr = unix.EPERM }, nil, "room in the cgroup", "unknown"},
	} {
		t.Run(name, func(t *testing.T) {
			f := able()
			c.change(&f)
			r := f.report()
			require.ErrorIs(t, r.Err, c.err)
			var found bool
			for _, a := range r.Abilities {
				if a.Name == c.row {
					found = true
					require.Contains(t, a.Detail, c.says)
				}
				if c.err == nil && a.Needed {
					require.True(t, a.OK, a.Name)
				}
			}
			require.True(t, found, "no row %q", c.row)
		})
	}
}

const (
	unified = "24 1 0:22 / /sys rw - sysfs sysfs rw\n" +
		"30 24 0:26 / /sys/fs/cgroup rw,nosuid,nodev,noexec,relatime shared:4 - cgroup2 cgroup2 rw,nsdelegate\n"
	v1Only = "33 24 0:29 / /sys/fs/cgroup/devices rw - cgroup cgroup rw,devices\n"
	hybrid = v1Only + "31 24 0:27 / /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw\n"
	// Docker mounts a container's own folder.
	bound   = "40 24 0:26 /docker/abc /sys/fs/cgroup ro - cgroup2 cgroup rw\n"
	escaped = "31 24 0:27 / /a\\040b\\134\\011\\9 rw - cgroup2 cgroup2 rw\n"
)

func TestCgroup2IsFoundInMountinfo(t *testing.T) {
	for text, want := range map[string]string{
		unified:                         "/sys/fs/cgroup",
		hybrid:                          "/sys/fs/cgroup/unified",
		bound + hybrid:                  "/sys/fs/cgroup/unified",
		escaped:                         "/a b\\\t\\9",
		"\n x\n - cgroup2 \n" + unified: "/sys/fs/cgroup",
	} {
		path, err := cgroup2Mount(text)
		require.NoError(t, err)
		require.Equal(t, want, path)
	}
	for _, text := range []string{"", v1Only, bound, "30 24 0:26 / /c rw - cgroup2fs x rw\n", "30 24 0:26 / - cgroup2 x rw\n"} {
		_, err := cgroup2Mount(text)
		require.ErrorIs(t, err, ErrUnsupported, text)
	}
}

func FuzzCgroup2Mount(f *testing.F) {
	for _, text := range []string{unified, v1Only, hybrid, bound, escaped} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		path, err := cgroup2Mount(text)
		require.Equal(t, err != nil, path == "")
	})
}

func FuzzParseRecord(f *testing.F) {
	f.Add(make([]byte, recordSize))
	f.Add(make([]byte, recordSize-1))
	f.Fuzz(func(t *testing.T, b []byte) {
		e, ok := parseRecord(b)
		require.Equal(t, len(b) == recordSize, ok)
		if ok {
			require.Less(t, e.Minor, 1<<16)
		}
	})
}

func TestClassesOfErrors(t *testing.T) {
	for err, class := range map[error]error{
		unix.EPERM: ErrPermission, unix.EACCES: ErrPermission, unix.ENOSYS: ErrUnsupported,
		unix.EINVAL: ErrUnsupported, unix.EOPNOTSUPP: ErrUnsupported,
	} {
		require.ErrorIs(t, classify("x", err), class)
		require.ErrorIs(t, classify("x", err), err)
	}
	for _, err := range []error{unix.ENOMEM, unix.EMFILE} {
		require.False(t, errors.Is(classify("x", err), ErrUnsupported), "%v may be over soon", err)
	}
}

func TestMinorsThatAreNotAGPUAreNeverInASet(t *testing.T) {
	some := guard.MinorsOf(253, -1, 0, 64, 254, 255, 256, 63, 1000)
	require.Equal(t, 4, some.Len())
	require.True(t, some.Has(0) && some.Has(63) && some.Has(64) && some.Has(253))
	all := guard.AllMinors()
	require.Equal(t, 254, all.Len())
	require.False(t, all.Has(254))
	require.False(t, all.Has(255))
	require.False(t, all.Has(-1))
	require.False(t, all.Has(256))
	require.Equal(t, guard.MinorsOf(1, 2), guard.MinorsOf(1).Or(guard.MinorsOf(2)))
}

// WithMajor guards the devices of another driver: one that this machine has.
func WithMajor(o Location, major int) Location {
	o.major = int32(major)
	return o
}

// A failure that lasts is the same problem each time: the log has it once.
func TestTheFirstMapThatFailsIsAlwaysTheSame(t *testing.T) {
	_, first := loadMaps(t.TempDir())
	require.Error(t, first)
	for range 50 {
		_, err := loadMaps(t.TempDir())
		require.Equal(t, first.Error(), err.Error())
	}
}
