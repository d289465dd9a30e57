package kernel_test

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"github.com/cilium/ebpf/link"
	"github.com/stretchr/testify/require"

	"github.com/seed-3119e985/genv/enforce/guard/guardtest"
	"github.com/seed-3119e985/genv/enforce/guard/kernel"
)

// The flags that others attach their programs with.
const (
	none     = 0
	override = 1
	multi    = 2
)

// foreign attaches a program that denies minor 2 of every major, as systemd and runc do it.
func foreign(t *testing.T, cgroup string, flags uint32) {
	t.Helper()
	program, err := ebpf.NewProgram(&ebpf.ProgramSpec{
		Name: "foreign", Type: ebpf.CGroupDevice, AttachType: ebpf.AttachCGroupDevice, License: "Apache-2.0",
		Instructions: asm.Instructions{
			asm.LoadMem(asm.R2, asm.R1, 8, asm.Word),
			asm.Mov.Imm(asm.R0, 0),
			asm.JEq.Imm(asm.R2, 2, "end"),
			asm.Mov.Imm(asm.R0, 1),
			asm.Return().WithSymbol("end"),
		},
	})
	require.NoError(t, err)
	folder, err := os.Open(cgroup)
	require.NoError(t, err)
	require.NoError(t, link.RawAttachProgram(link.RawAttachProgramOptions{
		Target: int(folder.Fd()), Program: program, Attach: ebpf.AttachCGroupDevice, Flags: flags,
	}))
	t.Cleanup(func() {
		require.NoError(t, link.RawDetachProgram(link.RawDetachProgramOptions{
			Target: int(folder.Fd()), Program: program, Attach: ebpf.AttachCGroupDevice,
		}))
		require.NoError(t, program.Close())
		require.NoError(t, folder.Close())
	})
}

func TestForeignPrograms(t *testing.T) {
	for name, c := range map[string]struct {
		above, own, below int
		conflict          bool
		others            int
	}{
		"alone":                        {-1, -1, -1, false, 0},
		"next to one of ours":          {-1, multi, -1, false, 1},
		"below one":                    {multi, -1, -1, false, 1},
		"above one":                    {-1, -1, multi, false, 0},
		"above one that shares not":    {-1, -1, none, false, 0},
		"above and below":              {multi, multi, multi, false, 2},
		"below one to be overridden":   {override, -1, -1, false, 1},
		"next to one that shares not":  {-1, none, -1, true, 1},
		"next to one to be overridden": {-1, override, -1, true, 1},
		"below one that shares not":    {none, -1, -1, true, 1},
	} {
		t.Run(name, func(t *testing.T) {
			s := newSite(t)
			above, own := s.cgroup, filepath.Join(s.cgroup, "own")
			below := filepath.Join(own, "below")
			s.cgroup = own
			require.NoError(t, os.MkdirAll(below, 0o755))
			t.Cleanup(func() {
				require.NoError(t, os.Remove(below))
				require.NoError(t, os.Remove(own))
			})
			for dir, flags := range map[string]int{above: c.above, own: c.own, below: c.below} {
				if flags >= 0 {
					foreign(t, dir, uint32(flags))
				}
			}
			report := kernel.Probe(s.options())
			require.Len(t, report.Programs, c.others)
			if c.conflict {
				require.ErrorIs(t, report.Err, kernel.ErrConflict)
				require.ErrorContains(t, report.Err, "(foreign) at "+report.Programs[0].Cgroup)
				_, err := kernel.Open(s.options())
				require.ErrorIs(t, err, kernel.ErrConflict)
				require.NoError(t, kernel.Remove(s.pins))
				return
			}
			require.NoError(t, report.Err)
			enforce(t, s.open())
			require.Equal(t, report.Programs, kernel.Probe(s.options()).Programs, "the guard itself is not in the way")
			s.cgroup = below
			user := s.user(1001)
			require.Equal(t, "allowed", user.open(s.node(0)))
			require.Equal(t, "denied", user.open(s.node(1)), "by the guard")
			denied := c.above == multi || c.own >= 0 || c.below >= 0
			require.Equal(t, denied, user.open(s.node(2)) == "denied", "by the other program")
		})
	}
}

// TestProbeOfThisMachine changes nothing, so it can look at the root cgroup.
func TestProbeOfThisMachine(t *testing.T) {
	report := kernel.Probe(kernel.Options{})
	for _, a := range report.Abilities {
		t.Logf("%-20s %-5v %s", a.Name, a.OK, a.Detail)
		require.NotEmpty(t, a.Detail)
	}
	guardtest.Need(t)
	for _, a := range report.Abilities {
		require.True(t, a.OK || a.Name == "pins" || a.Name == "PIDs in events" || a.Name == "room in the cgroup", a.Name)
	}
}
