package host

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/seed-3119e985/genv/snapshot/proc"
)

func TestOldGenvs(t *testing.T) {
	root := t.TempDir()
	for pid, line := range map[string]string{
		"10": "/usr/bin/python3\x00/usr/local/bin/genv\x00enforce\x00", "11": "python3.11\x00-u\x00-m\x00genv.cli\x00",
		"12": "python3\x00train.py\x00genv\x00", "13": "/usr/bin/genv\x00host\x00serve\x00", "14": "vi\x00genv\x00",
		"15": "python3\x00-m\x00http.server\x00", "16": "", "17": "python\x00", "self": "python3\x00genv\x00",
		"18": "python3\x00-m\x00", "19": "pythonic\x00genv\x00",
	} {
		require.NoError(t, os.Mkdir(filepath.Join(root, pid), 0o755))
		require.NoError(t, os.WriteFile(filepath.Join(root, pid, "cmdline"), []byte(line), 0o600))
	}
	require.Equal(t, []int{10, 11}, oldGenvs(proc.FS{Root: root}))
}
