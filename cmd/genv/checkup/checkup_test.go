package checkup_test

import (
	"fmt"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/stretchr/testify/require"

	"github.com/seed-3119e985/genv/cmd/genv/checkup"
	"github.com/seed-3119e985/genv/cmd/genv/command"
	remotedoctor "github.com/seed-3119e985/genv/remote/doctor"
	"github.com/seed-3119e985/genv/snapshot/doctor"
)

func TestWriteHost(t *testing.T) {
	document := &doctor.HostDocument{Checks: []doctor.Check{doctor.Good(doctor.Genv, "v1"), doctor.Problem(doctor.Disk, "disk-full", "no room")}}
	var b strings.Builder
	require.NoError(t, checkup.WriteHost(&b, document, checkup.Style{}))
	require.Equal(t, `CHECK     STATUS   FOUND
genv      ok       v1
disk      failed   no room
                   next: free space or inodes there
This is what a user without root can see; `+"`sudo genv doctor`"+` may see more.
`, b.String())
}

func TestExit(t *testing.T) {
	for status, code := range map[doctor.CheckStatus]int{doctor.OK: 0, doctor.Warning: 0, doctor.Failed: 3, doctor.Skipped: 3} {
		require.Equal(t, code, command.ExitCode(checkup.Exit(status)), status)
	}
}

// fleet is n hosts, all in order but the last ones, with these problems.
func fleet(n int, problems ...doctor.Check) *remotedoctor.FleetReport {
	all := make([]remotedoctor.HostReport, n)
	for i := range all {
		all[i].Host = fmt.Sprintf("gpu-%02d", i+1)
		for _, name := range doctor.Names() {
			c := doctor.Good(name, "all right")
			if at := i - (n - len(problems)); at >= 0 && problems[at].Name == name {
				c = problems[at]
			}
			all[i].Checks = append(all[i].Checks, c)
		}
		all[i].Status = doctor.Overall(all[i].Checks)
	}
	return new(remotedoctor.DocumentOf(all, nil, doctor.GenvProgram{}, time.Now()))
}

func printed(t *testing.T, d *remotedoctor.FleetReport, s checkup.Style) string {
	var b strings.Builder
	require.NoError(t, checkup.WriteFleet(&b, d, s))
	return b.String()
}

func TestHostsThatFailAlikeAreOneLine(t *testing.T) {
	var problems []doctor.Check
	for i := range 58 {
		problems = append(problems, doctor.Problem(doctor.DriverState, "nvidia-smi-hung", "nvidia-smi of gpu-%02d took %ds", i+3, i))
	}
	out := printed(t, fleet(60, problems...), checkup.Style{})
	require.Contains(t, out, "Failed\n  driver\n    gpu-[03-60]: nvidia-smi of … took … (58 hosts)\n    next: see `dmesg`")
	require.Equal(t, 1, strings.Count(out, "next: "))
	require.Equal(t, 60+1+4+1, strings.Count(out, "\n"), "the table, the cause, the summary")
	require.True(t, strings.HasSuffix(out, "60 hosts: 2 ok, 0 with warnings, 58 failed\n"))
	require.NotContains(t, out, " \n")
}

func TestOlderHostsAreNamed(t *testing.T) {
	for _, tt := range []struct {
		here, host string
		says       bool
	}{
		{"v2.10.0", "v2.9.0", true},
		{"2.10", "2.9.1", true},
		{"v3.0.0-rc1", "v2.9.0-3-g0123abc", true},
		{"v2.9.0", "v2.10.0", false},
		{"v2.9.0", "v2.9.0", false},
		{"v2.9.0", "v2.9.0-3-g0123abc", false},
		{"devel", "v2.9.0", false},
		{"v2.9.0", "devel", false},
		{"v2.9.0", "", false},
	} {
		d := fleet(3)
		d.Genv.Version, d.Hosts[0].Genv.Version, d.Hosts[1].Genv.Version, d.Hosts[2].Genv.Version = tt.here, tt.here, tt.host, tt.host
		out := printed(t, d, checkup.Style{})
		require.Equal(t, tt.says, strings.HasSuffix(out, "failed\ngenv on 2 hosts is older ("+tt.host+", here "+tt.here+"): genv remote install -H @all --upgrade\n"), "%v\n%s", tt, out)
		require.Equal(t, tt.says, strings.Contains(out, "older"))
	}
	d := fleet(1, doctor.Problem(doctor.Genv, "genv-1.4.3", "it has its own next step"))
	d.Genv.Version, d.Hosts[0].Genv.Version = "v2.9.0", "1.4.3"
	require.NotContains(t, printed(t, d, checkup.Style{}), "older")
}

func TestTheTableFits(t *testing.T) {
	d := fleet(3, doctor.Problem(doctor.Disk, "disk-low", "%s", strings.Repeat("word ", 60)), doctor.Problem(doctor.TCP, "x", "y"))
	for _, width := range []int{0, 60, 84, 100, 140} {
		out := printed(t, d, checkup.Style{Width: width})
		for line := range strings.Lines(out) {
			if width > 0 {
				require.LessOrEqual(t, utf8.RuneCountInString(strings.TrimRight(line, "\n")), width, line)
			}
		}
		require.Regexp(t, `(?m)^HOST +.*TCP.*DISK( +CTRL)?$`, out, "the columns with problems are there")
		require.Equal(t, width == 60 || width == 84, strings.Contains(out, "Columns left out, in which no host has a problem: NAME, KEY"), out)
	}
}

func TestStyles(t *testing.T) {
	d := fleet(2, doctor.Problem(doctor.Disk, "disk-full", "x\x1b[2J"))
	require.NotContains(t, printed(t, d, checkup.Style{}), "\x1b")
	require.Contains(t, printed(t, d, checkup.Style{Colourful: true}), "\x1b[31;1mFAIL\x1b[0m")
	require.Contains(t, printed(t, d, checkup.Style{All: true}), "gpu-01: all right")
	require.NotContains(t, printed(t, d, checkup.Style{TableOnly: true}), "next:")
}
