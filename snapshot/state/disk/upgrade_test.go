package disk_test

import (
	"encoding/json"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/seed-3119e985/genv/snapshot"
	"github.com/seed-3119e985/genv/snapshot/proc/proctest"
	"github.com/seed-3119e985/genv/snapshot/state"
)

// What genv 0.8 wrote about the same two environments as the recordings of 1.4.3.
const (
	envsOf08 = `{"envs": {
		"1667": {"eid": "1667", "uid": 1001, "creation": "20/11/2026 21:10:32", "username": "alice", "config": {"name": "my-env", "gpu_memory": null, "gpus": 2}, "pids": [25936, 25937]},
		"2020": {"uid": 1002, "creation": "20/11/2026 21:10:32", "username": "bob", "config": {"gpu_memory": "4g"}, "pids": [25938]}
	}}`
	devicesOf08 = `{"devices": {
		"0": {"total_memory": "81559mi", "eids": {"1667": {"attached": "20/11/2026 21:10:33"}, "2020": {"gpu_memory": "4g", "attached": "20/11/2026 21:10:34"}}},
		"1": {"total_memory": "81559mi", "eids": {"1667": {"attached": "20/11/2026 21:10:33"}}},
		"2": {"total_memory": "81559mi", "eids": {}},
		"3": {"total_memory": "81559mi", "eids": {"2020": {"gpu_memory": "4g", "attached": "20/11/2026 21:10:35"}}}
	}}`
)

// keysIn are the keys of all objects in a JSON document, by the keys that lead to them.
func keysIn(t *testing.T, text string) map[string][]string {
	t.Helper()
	keys := map[string][]string{}
	var walk func(path string, v any)
	walk = func(path string, v any) {
		switch v := v.(type) {
		case []any:
			for _, one := range v {
				walk(path, one)
			}
		case map[string]any:
			found := slices.Sorted(maps.Keys(v))
			if before, ok := keys[path]; ok {
				require.Equal(t, before, found, path)
			}
			keys[path] = found
			for key, one := range v {
				walk(path+"."+key, one)
			}
		}
	}
	var document any
	require.NoError(t, json.Unmarshal([]byte(text), &document))
	walk("", document)
	return keys
}

// requireFormatOf143 requires exactly the keys of 1.4.3, which crashes on others, and files that it can decode.
func requireFormatOf143(t *testing.T, dir string, eids ...snapshot.EnvID) {
	t.Helper()
	for _, name := range []string{"envs.json", "devices.json"} {
		require.Equal(t, keysIn(t, proctest.ReadText(t, filepath.Join(recorded, name))), keysIn(t, proctest.ReadText(t, filepath.Join(dir, name))), name)
	}
	envs := proctest.Try(snapshot.DecodeEnvironments([]byte(proctest.ReadText(t, filepath.Join(dir, "envs.json"))))).OK(t)
	var found []snapshot.EnvID
	for i := range envs {
		found = append(found, envs[i].EID)
	}
	require.Equal(t, eids, found)
}

// The state of an earlier version is taken over, changed, and given back in the format of
// 1.4.3, which goes on with it; and so a second time.
func TestAnUpgradeAndBack(t *testing.T) {
	for name, files := range map[string][2]string{
		"genv 1.4.3": {proctest.ReadText(t, filepath.Join(recorded, "envs.json")), proctest.ReadText(t, filepath.Join(recorded, "devices.json"))},
		"genv 0.8":   {envsOf08, devicesOf08},
	} {
		t.Run(name, func(t *testing.T) {
			h := newOwnedHost(t)
			require.NoError(t, os.RemoveAll(h.root))
			require.NoError(t, os.Mkdir(h.root, 0o755))
			put(t, h.dir, "envs.json", files[0])
			put(t, h.dir, "devices.json", files[1])
			h.takeOver(t)
			requireFormatOf143(t, h.dir, "1667", "2020")
			if name == "genv 1.4.3" {
				require.JSONEq(t, files[0], proctest.ReadText(t, h.owned("envs.json")))
				require.JSONEq(t, files[1], proctest.ReadText(t, h.owned("devices.json")))
			}
			require.NoError(t, h.store.Update(t.Context(), enter(7)))
			require.NoError(t, h.store.Update(t.Context(), func(f *state.Files) error {
				f.Detach("1667", 1)
				return f.Configure("2020", snapshot.EnvConfig{Name: "renamed"})
			}))
			requireFormatOf143(t, h.dir, "1667", "2020", "7")

			require.True(t, proctest.Try(h.store.HandOver(t.Context(), nil)).OK(t))
			requireFormatOf143(t, h.dir, "1667", "2020", "7")
			old := child(t.Context(), "legacy", h.dir)
			if os.Geteuid() == 0 {
				asUser(old, 4001)
			}
			stop, output := proctest.StartPiped(t, old)
			require.NoError(t, stop.Close())
			said := proctest.Try(io.ReadAll(output)).OK(t)
			require.NoError(t, old.Wait(), "every user writes the files again")
			require.Contains(t, string(said), "turns")
			requireFormatOf143(t, h.dir, "1667", "2020", "7", "1.4.3")

			h.takeOver(t)
			now := read(t, h.store)
			require.Equal(t, "renamed", now.Environment("2020").Config.Name)
			require.Equal(t, indices{0}, now.AttachedTo("1667"))
			require.Equal(t, indices{0, 3}, now.AttachedTo("2020"))
			require.Len(t, now.AttachedTo("7"), 1)
			require.NotNil(t, now.Environment("1.4.3"))
		})
	}
}
