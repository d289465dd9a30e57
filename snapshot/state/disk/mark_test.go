package disk_test

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/seed-3119e985/genv/snapshot"
	"github.com/seed-3119e985/genv/snapshot/state"
	"github.com/seed-3119e985/genv/snapshot/state/disk"
	"github.com/seed-3119e985/genv/snapshot/state/system"
)

// What is kept elsewhere is added to what is restored, by the same reading.
func TestRestoredAttachmentsAreMarked(t *testing.T) {
	for name, lose := range map[string]func(*testing.T, string){
		"devices.json": func(t *testing.T, dir string) {
			t.Helper()
			require.NoError(t, os.Remove(filepath.Join(dir, "devices.json")))
		},
		"envs.json": func(t *testing.T, dir string) {
			t.Helper()
			require.NoError(t, os.Remove(filepath.Join(dir, "envs.json")))
		},
		"both": func(t *testing.T, dir string) {
			t.Helper()
			require.NoError(t, os.RemoveAll(dir))
		},
		"the environment": func(t *testing.T, dir string) {
			t.Helper()
			require.NoError(t, disk.New(dir, disk.Config{System: &fakeSystem{}}).Update(t.Context(), func(f *state.Files) error {
				f.Environments = nil
				f.Detach("1102")
				return nil
			}))
		},
	} {
		t.Run(name, func(t *testing.T) {
			_, machine, dir, root := kept(t)
			machine.running = []system.RunningProcess{job(50, alice, "1102")}
			lose(t, dir)
			store := disk.New(dir, disk.Config{RootDir: root, System: machine, Mark: func(f *state.Files) {
				if a := f.Device(0); f.Environment("1102") != nil && a != nil && a.Attachment("1102") != nil {
					a.Attachment("1102").Instances = []snapshot.GPUUUID{"MIG-a"}
				}
			}})
			files, err := store.Read(t.Context())
			require.NoError(t, err)
			require.Equal(t, []snapshot.GPUUUID{"MIG-a"}, files.Device(0).Attachment("1102").Instances)
		})
	}
}
