package system

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestFirstUID(t *testing.T) {
	for text, want := range map[string]int{
		"": 1000, "# UID_MIN 500\n": 1000, "UID_MIN\t\t 500\nUID_MAX 60000\n": 500, "UID_MIN 0\n": 1000, "UID_MIN many\n": 1000, "SYS_UID_MIN 101\nUID_MIN 10000": 10000,
	} {
		require.EqualValues(t, want, firstUID(text), text)
	}
}

func TestTheZoneOfTheMachine(t *testing.T) {
	file := filepath.Join(t.TempDir(), "localtime")
	require.Equal(t, time.UTC, zoneIn(file), "there is none")
	require.NoError(t, os.WriteFile(file, []byte("rubbish"), 0o600))
	require.Equal(t, time.UTC, zoneIn(file))
	// A file as in tzfile(5) with the rule alone: an hour east of UTC.
	header := append([]byte("TZif2"), make([]byte, 15)...)
	counts := []byte{0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 4}
	zone := []byte{0, 0, 0x0e, 0x10, 0, 0, 'C', 'E', 'T', 0}
	half := append(append(append([]byte{}, header...), counts...), zone...)
	require.NoError(t, os.WriteFile(file, append(append(half, half...), "\nCET-1\n"...), 0o600))
	_, offset := time.Now().In(zoneIn(file)).Zone()
	require.Equal(t, 3600, offset)
}
