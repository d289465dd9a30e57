package snapshot_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/seed-3119e985/genv/snapshot"
)

const recorded = "testdata/genv-1.4.3"

// recode decodes a document by the name of its file and encodes it again.
func recode(name string, data []byte) ([]byte, error) {
	switch {
	case strings.Contains(name, "full"):
		s, err := snapshot.DecodeSnapshot(data)
		if err != nil {
			return nil, err
		}
		return snapshot.EncodeSnapshot(s)
	case strings.Contains(name, "processes"):
		p, err := snapshot.DecodeProcesses(data)
		if err != nil {
			return nil, err
		}
		return snapshot.EncodeProcesses(p)
	case strings.Contains(name, "envs"):
		e, err := snapshot.DecodeEnvironments(data)
		if err != nil {
			return nil, err
		}
		return snapshot.EncodeEnvironments(e)
	default:
		d, err := snapshot.DecodeDevices(data)
		if err != nil {
			return nil, err
		}
		return snapshot.EncodeDevices(d)
	}
}

func TestRecordedDocumentsSurviveARoundTrip(t *testing.T) {
	for _, name := range []string{
		"wire/usage-snapshot-full.json", "wire/usage-snapshot-envs.json", "wire/usage-snapshot-devices.json",
		"wire/usage-snapshot-processes.json", "state/envs.json", "state/devices.json",
	} {
		t.Run(name, func(t *testing.T) {
			want, err := os.ReadFile(filepath.Join(recorded, name))
			require.NoError(t, err)
			got, err := recode(filepath.Base(name), want)
			require.NoError(t, err)
			require.Equal(t, strings.TrimSuffix(string(want), "\n"), string(got))
		})
	}
}
