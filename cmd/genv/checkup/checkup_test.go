package checkup_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/seed-3119e985/genv/cmd/genv/checkup"
	"github.com/seed-3119e985/genv/cmd/genv/command"
	"github.com/seed-3119e985/genv/snapshot/doctor"
)

func TestWriteHost(t *testing.T) {
	document := &doctor.Document{Checks: []doctor.Check{doctor.Good(doctor.Genv, "v1"), doctor.Problem(doctor.Disk, "disk-full", "no room")}}
	var b strings.Builder
	require.NoError(t, checkup.WriteHost(&b, document, checkup.Style{}))
	require.Equal(t, `CHECK     STATUS   FOUND
genv      ok       v1
disk      failed   no room
                   next: free space or inodes there: the record of what is done can't be written
This is what a user without root can see; `+"`sudo genv doctor`"+` may see more.
`, b.String())
}

func TestExit(t *testing.T) {
	for status, code := range map[doctor.Status]int{doctor.OK: 0, doctor.Warning: 0, doctor.Failed: 3, doctor.Skipped: 3} {
		require.Equal(t, code, command.ExitCode(checkup.Exit(status)), status)
	}
}
