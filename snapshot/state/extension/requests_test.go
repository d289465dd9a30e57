package extension_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-3119e985/genv/snapshot"
	"github.com/seed-3119e985/genv/snapshot/state"
	"github.com/seed-3119e985/genv/snapshot/state/extension"
)

var me = snapshot.UID(os.Getuid())

// files have an environment of uid that is attached to the first so many devices.
func files(t *testing.T, uid snapshot.UID, devices int) state.Files {
	t.Helper()
	f := state.Files{Environments: []snapshot.Environment{{EID: "1", UID: uid}}}
	for i := range devices {
		a := snapshot.Attachment{EID: "1", Time: date(t, 0)}
		f.Devices = append(f.Devices, snapshot.Device{Index: snapshot.DeviceIndex(i), Attachments: []snapshot.Attachment{a}})
	}
	return f
}

func date(t *testing.T, second int) snapshot.Date {
	t.Helper()
	d, err := snapshot.ParseDate(fmt.Sprintf("20/11/2026 10:00:%02d", second))
	require.NoError(t, err)
	return d
}

func request(t *testing.T, id string, device int) snapshot.Extension {
	t.Helper()
	return snapshot.Extension{ID: id, UID: me, EID: "1", Index: snapshot.DeviceIndex(device), Attached: date(t, 0), For: 2 * time.Hour}
}

func TestRequestsAreReadAsTheyWereAdded(t *testing.T) {
	r, two := extension.Requests{Dir: filepath.Join(t.TempDir(), "state")}, files(t, me, 2)
	list, warnings := r.Read(two)
	require.NotNil(t, list, "the host takes requests")
	require.Empty(t, list)
	require.Empty(t, warnings)

	require.NoError(t, r.Add(&two, me, []snapshot.Extension{request(t, "a", 0)}))
	require.NoError(t, r.Add(&two, me, []snapshot.Extension{request(t, "b", 1)}))
	require.NoError(t, r.Add(&two, me, []snapshot.Extension{request(t, "c", 0)}), "it replaces a")
	list, warnings = r.Read(two)
	require.Equal(t, []snapshot.Extension{request(t, "b", 1), request(t, "c", 0)}, list)
	require.Empty(t, warnings)

	one := files(t, me, 1)
	list, _ = r.Read(one)
	require.Len(t, list, 1, "device 1 is not attached any more")
	require.NoError(t, r.Add(&one, me, []snapshot.Extension{request(t, "d", 0)}))
	list, _ = r.Read(two)
	require.Equal(t, []snapshot.Extension{request(t, "d", 0)}, list, "what is over was dropped")
	stat, err := os.Stat(filepath.Join(r.Dir, "extend"))
	require.NoError(t, err)
	require.Equal(t, os.FileMode(0o777), stat.Mode().Perm())
}

// What another user, or a mistake, can put there counts for nothing, and keeps no cycle waiting.
func TestRequestsThatDoNotCount(t *testing.T) {
	good, err := snapshot.EncodeExtensions([]snapshot.Extension{request(t, "a", 0)})
	require.NoError(t, err)
	body := func(s string) func(string) error {
		return func(path string) error { return os.WriteFile(path, []byte(s), 0o644) }
	}
	replaced := func(old, with string) func(string) error {
		require.Contains(t, string(good), old)
		return body(strings.Replace(string(good), old, with, 1))
	}
	for _, tt := range []struct {
		name    string
		put     func(path string) error
		files   state.Files
		warning string // "" for none
	}{
		{"no file", func(string) error { return nil }, files(t, me, 1), ""},
		{"a link", func(path string) error { return os.Symlink("/etc/passwd", path) }, files(t, me, 1), "symbolic link"},
		{"two names", func(path string) error { return os.Link(filepath.Join(filepath.Dir(path), "good"), path) }, files(t, me, 1), "2 hard links"},
		{"a FIFO", func(path string) error { return syscall.Mkfifo(path, 0o666) }, files(t, me, 1), "not a regular file"},
		{"a folder", func(path string) error { return os.Mkdir(path, 0o755) }, files(t, me, 1), "not a regular file"},
		{"too large", body(strings.Repeat(" ", 17<<10)), files(t, me, 1), "larger than"},
		{"no JSON", body("{"), files(t, me, 1), "unexpected end"},
		{"empty", body(""), files(t, me, 1), "unexpected end"},
		{"a huge time", replaced("7200", "9223372036854775807"), files(t, me, 1), "an extension of 9223372036854775807 seconds"},
		{"a time too large for a number", replaced("7200", "1e99"), files(t, me, 1), "cannot unmarshal"},
		{"no time", replaced("7200", "0"), files(t, me, 1), "an extension of 0 seconds"},
		{"a time that is over", replaced("7200", "-7200"), files(t, me, 1), "an extension of -7200 seconds"},
		{"a device that no host has", replaced(`"device":0`, `"device":-1`), files(t, me, 1), "device index"},
		{"no ID", replaced(`"id":"a"`, `"id":""`), files(t, me, 1), "id is empty"},
		{"a long ID", replaced(`"id":"a"`, `"id":"`+strings.Repeat("a", 65)+`"`), files(t, me, 1), "longer than 64 bytes"},
		{"an escape sequence", replaced(`"id":"a"`, `"id":"\u001b[2J"`), files(t, me, 1), "control character"},
		{"twice the same", body("[" + strings.Trim(string(good), "[]") + "," + strings.Trim(string(good), "[]") + "]"), files(t, me, 1), "listed twice"},
		{"of an attachment of another time", replaced("10:00:00", "10:00:01"), files(t, me, 1), ""},
		{"of an attachment in the future", replaced("2026", "2999"), files(t, me, 1), ""},
		{"of another user's environment", body(string(good)), files(t, me+1, 1), ""},
		{"of an environment that isn't attached", body(string(good)), files(t, me, 0), ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			r := extension.Requests{Dir: t.TempDir()}
			folder := filepath.Join(r.Dir, "extend")
			require.NoError(t, os.Mkdir(folder, 0o755))
			require.NoError(t, os.WriteFile(filepath.Join(folder, "good"), good, 0o644))
			require.NoError(t, tt.put(filepath.Join(folder, fmt.Sprintf("%d.json", me))))
			list, warnings := r.Read(tt.files)
			require.Empty(t, list)
			require.Equal(t, tt.warning != "", len(warnings) == 1, "%s", warnings)
			if tt.warning != "" {
				require.Contains(t, warnings[0], tt.warning)
			}
		})
	}
}

// The owner of the file counts, not its name, and not what it says.
func TestARequestIsThatOfTheOwnerOfTheFile(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("only root can give a file to another user")
	}
	const alice, mallory = 4321, 4322
	r := extension.Requests{Dir: t.TempDir()}
	require.NoError(t, os.Mkdir(filepath.Join(r.Dir, "extend"), 0o777))
	path := filepath.Join(r.Dir, "extend", "4321.json")
	data, err := snapshot.EncodeExtensions([]snapshot.Extension{request(t, "a", 0)}) // it says uid 0
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(path, data, 0o644))

	require.NoError(t, os.Chown(path, mallory, mallory))
	list, warnings := r.Read(files(t, alice, 1))
	require.Empty(t, list)
	require.Len(t, warnings, 1)
	require.Contains(t, warnings[0], "4321.json belongs to uid 4322: it was not read")

	require.NoError(t, os.Chown(path, alice, alice))
	list, warnings = r.Read(files(t, alice, 1))
	require.Empty(t, warnings)
	require.Len(t, list, 1)
	require.Equal(t, snapshot.UID(alice), list[0].UID)
}

func TestAFolderThatIsALinkIsNotFollowed(t *testing.T) {
	r := extension.Requests{Dir: t.TempDir()}
	require.NoError(t, os.Symlink(t.TempDir(), filepath.Join(r.Dir, "extend")))
	one := files(t, me, 1)
	list, warnings := r.Read(one)
	require.Empty(t, list)
	require.Len(t, warnings, 1)
	require.Error(t, r.Add(&one, me, []snapshot.Extension{request(t, "a", 0)}))
}

func TestTooManyRequestsAreRefused(t *testing.T) {
	r, many := extension.Requests{Dir: t.TempDir()}, files(t, me, 65)
	var list []snapshot.Extension
	for i := range 65 {
		list = append(list, request(t, "a", i))
	}
	require.ErrorContains(t, r.Add(&many, me, list), "maximum of 64")
	require.NoError(t, r.Add(&many, me, list[:64]))
	read, warnings := r.Read(many)
	require.Len(t, read, 64)
	require.Empty(t, warnings, "as many fit into a file")
}

// Whatever is decoded is within its bounds, and encodes as the same again.
func FuzzDecodeExtensions(f *testing.F) {
	f.Add([]byte(`[{"id":"a","uid":7,"eid":"1","device":0,"attached":"20/11/2026 10:00:00","seconds":7200}]`))
	f.Add([]byte(`[{"id":"a","eid":"1","device":1e9,"attached":"","seconds":-1}]`))
	f.Add([]byte(`null`))
	f.Add([]byte(`{}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		list, err := snapshot.DecodeExtensions(data)
		if err != nil {
			require.ErrorIs(t, err, snapshot.ErrInvalid)
			return
		}
		for _, x := range list {
			require.NotEmpty(t, x.ID)
			require.NotEmpty(t, x.EID)
			require.Positive(t, x.For)
			require.LessOrEqual(t, x.For, snapshot.MaxExtension)
		}
		encoded, err := snapshot.EncodeExtensions(list)
		require.NoError(t, err)
		again, err := snapshot.DecodeExtensions(encoded)
		require.NoError(t, err)
		require.Equal(t, list, again)
	})
}

// Requests go to root's folder, where root alone writes, and back to files of their users.
func TestMove(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("only root can give files to users")
	}
	const user = snapshot.UID(4001)
	dir, root, here := t.TempDir(), t.TempDir(), files(t, user, 2)
	shared := extension.Requests{Dir: dir}
	owned := extension.Requests{Dir: dir, Owned: func() (string, error) { return root, nil }}
	x := request(t, "a", 0)
	x.UID = user
	require.NoError(t, shared.Add(&here, user, []snapshot.Extension{x}))
	want, warnings := shared.Read(here)
	require.Empty(t, warnings)
	require.Len(t, want, 1)

	require.NoError(t, shared.Move(&here, owned))
	list, warnings := owned.Read(here)
	require.Empty(t, warnings)
	require.Equal(t, want, list)
	info, err := os.Stat(filepath.Join(root, "extend/4001.json"))
	require.NoError(t, err)
	require.EqualValues(t, 0, info.Sys().(*syscall.Stat_t).Uid)

	require.NoError(t, os.RemoveAll(filepath.Join(dir, "extend")))
	require.NoError(t, owned.Move(&here, shared))
	list, warnings = shared.Read(here)
	require.Empty(t, warnings)
	require.Equal(t, want, list)
}
