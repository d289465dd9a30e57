package instances

import (
	"os"
	"path/filepath"
	"strconv"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/seed-3119e985/genv/snapshot"
	"github.com/seed-3119e985/genv/snapshot/state"
)

var me = snapshot.UID(os.Getuid())

// attached are files with an environment of a user on two devices, the second by instance.
func attached(t *testing.T, uid snapshot.UID, list ...snapshot.GPUUUID) state.Files {
	t.Helper()
	at, err := snapshot.ParseDate("20/11/2026 10:00:00")
	require.NoError(t, err)
	f := state.Files{Environments: []snapshot.Environment{{EID: "1", UID: uid}}}
	for i := range 2 {
		f.Devices = append(f.Devices, snapshot.Device{Index: snapshot.DeviceIndex(i), Attachments: []snapshot.Attachment{{EID: "1", Time: at}}})
	}
	f.Devices[1].Attachments[0].Instances = list
	return f
}

func TestNotesAreMarkedAsTheyWereSaved(t *testing.T) {
	n := Notes{Dir: t.TempDir()}
	saved, fresh := attached(t, me, "MIG-a", "MIG-b"), attached(t, me)
	require.NoError(t, n.Save(&saved, "1"))
	n.Mark(&fresh)
	require.Equal(t, saved, fresh)
	again := attached(t, me)
	again.Devices[1].Attachments[0].Time = snapshot.Date{}
	n.Mark(&again)
	require.Empty(t, again.Devices[1].Attachments[0].Instances, "another attachment")
	require.ErrorIs(t, n.Save(&saved, "2"), state.ErrNoEnvironment)
}

// What another user wrote, or a mistake, counts for nothing.
func TestNotesThatDoNotCount(t *testing.T) {
	const good = `[{"eid":"1","device":1,"attached":"20/11/2026 10:00:00","mig":["MIG-a"]}]`
	for name, row := range map[string]struct {
		text     string
		warnings int
		marked   bool
	}{
		"good":                     {good, 0, true},
		"of a device it hasn't":    {`[{"eid":"1","device":5,"attached":"20/11/2026 10:00:00","mig":["MIG-a"]}]`, 0, false},
		"of another's environment": {`[{"eid":"2","device":1,"attached":"20/11/2026 10:00:00","mig":["MIG-a"]}]`, 0, false},
		"an instance with a shell": {`[{"eid":"1","device":1,"attached":"20/11/2026 10:00:00","mig":["MIG-$(id)"]}]`, 1, false},
		"a whole GPU":              {`[{"eid":"1","device":1,"attached":"20/11/2026 10:00:00","mig":["GPU-1"]}]`, 1, false},
		"no date":                  {`[{"eid":"1","device":1,"mig":["MIG-a"]}]`, 1, false},
		"no list":                  {`{}`, 1, false},
		"garbled":                  {`[`, 1, false},
	} {
		t.Run(name, func(t *testing.T) {
			n := Notes{Dir: t.TempDir()}
			require.NoError(t, os.Mkdir(filepath.Join(n.Dir, "mig"), 0o777))
			require.NoError(t, os.WriteFile(filepath.Join(n.Dir, "mig", strconv.FormatInt(int64(me), 10)+".json"), []byte(row.text), 0o644))
			f := attached(t, me)
			n.Mark(&f)
			n.Mark(&f) // says nothing twice
			require.Len(t, f.Warnings, row.warnings, f.Warnings)
			require.Equal(t, row.marked, len(f.Devices[1].Attachments[0].Instances) > 0)
		})
	}
}

// A note is about a GPU, where root has noted which one the index is.
func TestNotesFollowTheirGPU(t *testing.T) {
	n := Notes{Dir: t.TempDir()}
	files := func(first, second snapshot.GPUUUID, list ...snapshot.GPUUUID) *state.Files {
		f := attached(t, me, list...)
		f.Devices[0].UUID, f.Devices[1].UUID = first, second
		return &f
	}
	require.NoError(t, n.Save(files("GPU-a", "GPU-b", "MIG-b"), "1"))
	for name, row := range map[string]struct {
		files *state.Files
		at    int // the device with the instances; -1 for none
	}{
		"the same":         {files("GPU-a", "GPU-b"), 1},
		"before the looks": {files("", ""), 1},
		"renumbered":       {files("GPU-b", "GPU-c"), 0},
		"gone":             {files("GPU-a", "GPU-c"), -1},
	} {
		n.Mark(row.files)
		for i, d := range row.files.Devices {
			require.Equal(t, i == row.at, len(d.Attachments[0].Instances) > 0, "%s: device %d", name, i)
		}
	}
}

// TestNotesOfAnotherUser: the kernel says who wrote a file.
func TestNotesOfAnotherUser(t *testing.T) {
	n := Notes{Dir: t.TempDir()}
	f := attached(t, me, "MIG-a")
	require.NoError(t, n.Save(&f, "1"))
	other := strconv.FormatInt(int64(me)+1, 10) + ".json"
	require.NoError(t, os.Rename(filepath.Join(n.Dir, "mig", strconv.FormatInt(int64(me), 10)+".json"), filepath.Join(n.Dir, "mig", other)))
	theirs := attached(t, me+1)
	n.Mark(&theirs)
	require.Empty(t, theirs.Devices[1].Attachments[0].Instances)
	require.Len(t, theirs.Warnings, 1)
}

func FuzzDecode(f *testing.F) {
	f.Add([]byte(`[{"eid":"1","device":1,"attached":"20/11/2026 10:00:00","mig":["MIG-a"]}]`))
	f.Add([]byte(`[{"eid":"\u001b","device":-1,"attached":"x","mig":null}]`))
	f.Fuzz(func(t *testing.T, data []byte) {
		list, err := decode(data)
		if err != nil {
			require.ErrorIs(t, err, snapshot.ErrInvalid)
			return
		}
		for _, n := range list {
			require.NoError(t, snapshot.CheckInstances(n.Instances))
		}
	})
}
