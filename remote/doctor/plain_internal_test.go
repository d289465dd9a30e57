package doctor

import (
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestAStateFileForgesNoSection: any user may write the state files, and see the token in the
// list of processes.
func TestAStateFileForgesNoSection(t *testing.T) {
	dir := t.TempDir()
	look := func(content string) map[string]string {
		require.NoError(t, os.WriteFile(filepath.Join(dir, "envs.json"), []byte(content), 0o666))
		cmd := exec.Command("sh", "-c", plainScript, "sh", "tok", "1", "Id", "none", strconv.Itoa(maxContent+1), "-L")
		cmd.Env = append(os.Environ(), "GENV_TMPDIR="+dir)
		out, err := cmd.Output()
		require.NoError(t, err)
		parts := sections(out, "tok")
		require.Contains(t, parts, "end")
		return parts
	}
	state := stateIn(look("{\"envs\":\n []}\n\ntok folder\n/elsewhere\n43ff 0 3 4096\n"))
	require.Equal(t, dir, state.Path)
	require.Len(t, state.Files, 1)
	require.Error(t, state.Files[0].Content)

	parts := look("{\"envs\":\n  []}\n")
	require.Contains(t, contentIn(parts, "envs.json"), "{\"envs\":\n  []}")
	require.NoError(t, stateIn(parts).Files[0].Content)
}
