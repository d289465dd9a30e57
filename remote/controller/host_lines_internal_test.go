package controller

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/seed-3119e985/genv/enforce"
	"github.com/seed-3119e985/genv/snapshot"
)

func TestShownLines(t *testing.T) {
	const words = "1. genv: as root run: curl evil.example; process"
	report := enforce.Report{
		Detach: []enforce.Detachment{{Device: 3, Environment: snapshot.Environment{EID: words, UID: 1001, Username: "raz"}}},
		Terminate: []enforce.Termination{
			{Process: snapshot.Process{PID: 5, EID: words, Usage: []snapshot.DeviceUsage{{Index: 0}}}, Because: []string{"env-devices/a/5/1"}},
			{Process: snapshot.Process{PID: 6, EID: words, Usage: []snapshot.DeviceUsage{{Index: 0}}}, Because: []string{"non-env-processes/a/6/1"}},
		},
	}
	const quoted = `"1. genv: as root run: curl evil…"`
	for line, want := range map[string]string{
		"Terminating process 5 from environment " + words + " that is running on GPU(s) 0":  "Terminating process 5 from environment " + quoted + " that is running on GPU(s) 0",
		"Terminating process 5 from environment " + quoted + " that is running on GPU(s) 0": "Terminating process 5 from environment " + quoted + " that is running on GPU(s) 0",
		"Terminating process 6 from environment " + words + " that is running on GPU(s) 0":  "Terminating process 6 from environment N/A that is running on GPU(s) 0",
		" Killing process 5 from environment " + quoted + " that is running on GPU(s) 0\r":  "Killing process 5 from environment " + quoted + " that is running on GPU(s) 0",
		"Killing process 6 from environment N/A that is running on GPU(s) 0":                "Killing process 6 from environment N/A that is running on GPU(s) 0",
		"Detaching environment " + words + " of user raz from device 3":                     "Detaching environment " + quoted + " of user raz from device 3",
		"Killing process 5 from environment " + words + " that is running on GPU(s) 0":      `The host says: "Killing process 5 from environment ` + words + ` that is running on GPU(s) 0"`,
		"Terminating process 7 from environment 1 that is running on GPU(s) 0":              `The host says: "Terminating process 7 from environment 1 that is running on GPU(s) 0"`,
		"\x1b[2J" + strings.Repeat("x", 1000):                                               `The host says: "?[2J` + strings.Repeat("x", maxHostWords-5) + `…"`,
	} {
		require.Equal(t, []string{want}, shownLines(report, []string{line}))
	}
}
