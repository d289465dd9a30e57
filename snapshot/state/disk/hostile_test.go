package disk_test

import (
	"cmp"
	"context"
	"errors"
	"net"
	"os"
	"path/filepath"
	"regexp"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/seed-3119e985/genv/snapshot"
	"github.com/seed-3119e985/genv/snapshot/proc/proctest"
	"github.com/seed-3119e985/genv/snapshot/state"
	"github.com/seed-3119e985/genv/snapshot/state/disk"
	"github.com/seed-3119e985/genv/snapshot/state/folder"
	"github.com/seed-3119e985/genv/snapshot/state/system"
)

// plants are what a user may put in the place of a state file. Each returns a check that it was left as it is.
func plants() map[string]func(t *testing.T, path string) func() {
	unchanged := func(t *testing.T, path, content string) func() {
		return func() { require.Equal(t, content, proctest.ReadText(t, path)) }
	}
	nothing := func() {}
	return map[string]func(t *testing.T, path string) func(){
		"a link": func(t *testing.T, path string) func() {
			target := filepath.Join(t.TempDir(), "target")
			require.NoError(t, os.WriteFile(target, []byte("precious"), 0o600))
			require.NoError(t, os.Symlink(target, path))
			return unchanged(t, target, "precious")
		},
		"a dangling link": func(t *testing.T, path string) func() {
			target := filepath.Join(t.TempDir(), "target")
			require.NoError(t, os.Symlink(target, path))
			return func() { require.NoFileExists(t, target) }
		},
		"a hard link": func(t *testing.T, path string) func() {
			target := filepath.Join(filepath.Dir(path), "target")
			require.NoError(t, os.WriteFile(target, []byte("precious"), 0o600))
			require.NoError(t, os.Link(target, path))
			return unchanged(t, target, "precious")
		},
		"a FIFO": func(t *testing.T, path string) func() {
			require.NoError(t, unix.Mkfifo(path, 0o666))
			return nothing
		},
		"a leased file": func(t *testing.T, path string) func() {
			require.NoError(t, os.WriteFile(path, nil, 0o666))
			lease(t, path)
			return nothing
		},
		"a folder": func(t *testing.T, path string) func() {
			require.NoError(t, os.Mkdir(path, 0o777))
			return nothing
		},
		"a socket": func(t *testing.T, path string) func() {
			t.Chdir(filepath.Dir(path)) // the name of a socket is short
			listener := proctest.Try(net.Listen("unix", filepath.Base(path))).OK(t)
			t.Cleanup(func() { _ = listener.Close() })
			return nothing
		},
		"a huge file": func(t *testing.T, path string) func() {
			require.NoError(t, os.WriteFile(path, nil, 0o600))
			require.NoError(t, os.Truncate(path, 1<<40))
			return nothing
		},
	}
}

func TestUnsafeFilesAreRefusedAndLeftUnchanged(t *testing.T) {
	for name, plant := range plants() {
		for _, file := range []string{"envs.json", "devices.json", "genv.lock", "devices/0.lock"} {
			if file[len(file)-4:] == "lock" && name == "a huge file" {
				continue // what is in a lock file does not matter
			}
			t.Run(name+" as "+file, func(t *testing.T) {
				dir := recordedFolder(t)
				require.NoError(t, os.Mkdir(filepath.Join(dir, "devices"), 0o777))
				path := filepath.Join(dir, file)
				require.NoError(t, os.RemoveAll(path))
				left := plant(t, path)
				before, err := os.Lstat(path)
				require.NoError(t, err)

				store := everyoneLives(dir)
				if file == "devices/0.lock" {
					_, err = store.LockDevices(t.Context(), indices{0})
				} else {
					_, err = store.Read(t.Context())
					require.ErrorIs(t, store.Update(t.Context(), enter(7)), folder.ErrUnsafe)
				}
				require.ErrorIs(t, err, folder.ErrUnsafe)
				require.ErrorContains(t, err, path)

				left()
				after := proctest.Try(os.Lstat(path)).OK(t)
				require.True(t, os.SameFile(before, after))
				require.Equal(t, before.Mode(), after.Mode())
			})
		}
	}
}

func TestALinkInTheFoldersPlace(t *testing.T) {
	proctest.NeedRoot(t)
	tests := []struct {
		name  string
		owner int
		safe  bool
	}{{"root's", 0, true}, {"another user's", 4001, false}}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			link := sharedDir(t)
			require.NoError(t, os.Symlink(recordedFolder(t), link))
			require.NoError(t, os.Lchown(link, tt.owner, tt.owner))
			_, err := everyoneLives(link).Read(t.Context())
			if tt.safe {
				require.NoError(t, err)
			} else {
				require.ErrorIs(t, err, folder.ErrUnsafe)
			}
		})
	}
}

func TestALinkInThePlaceOfTheDeviceLocks(t *testing.T) {
	dir, elsewhere := recordedFolder(t), t.TempDir()
	require.NoError(t, os.Symlink(elsewhere, filepath.Join(dir, "devices")))
	require.ErrorIs(t, proctest.Try(everyoneLives(dir).LockDevices(t.Context(), indices{0})).Err, folder.ErrUnsafe)
	require.Empty(t, proctest.Names(t, elsewhere))
}

func TestALeftoverIsReplacedAndNeverFollowed(t *testing.T) {
	dir := recordedFolder(t)
	target := filepath.Join(t.TempDir(), "target")
	require.NoError(t, os.WriteFile(target, []byte("precious"), 0o600))
	for _, name := range []string{"envs.json.tmp", "devices.json.tmp"} {
		require.NoError(t, os.Symlink(target, filepath.Join(dir, name)))
	}
	require.NoError(t, everyoneLives(dir).Update(t.Context(), enter(7)))
	require.Equal(t, "precious", proctest.ReadText(t, target))
	require.ElementsMatch(t, []string{"envs.json", "devices.json", "genv.lock"}, proctest.Names(t, dir))
}

// What is in the way of writing must not keep a device from being taken back.
func TestAFolderInPlaceOfATemporaryFile(t *testing.T) {
	dir := recordedFolder(t)
	for _, name := range []string{"envs.json.tmp", "devices.json.tmp"} {
		require.NoError(t, os.MkdirAll(filepath.Join(dir, name, "full"), 0o777))
	}
	require.NoError(t, everyoneLives(dir).Update(t.Context(), enter(7)))
	require.NotNil(t, read(t, everyoneLives(dir)).Environment("7"))
	require.ElementsMatch(t, []string{
		"envs.json", "devices.json", "genv.lock", "envs.json.tmp", "devices.json.tmp",
	}, proctest.Names(t, dir))
}

// A uid without an account has no name; one that is only unknown keeps it.
func TestANameWithoutAnAccount(t *testing.T) {
	config := disk.Config{System: &fakeSystem{}, Username: func(context.Context, snapshot.UID) snapshot.Username { return "" }}
	config.Lacks = func(_ context.Context, uid snapshot.UID) bool { return uid == 54321 }
	store := disk.New(t.TempDir(), config)
	require.NoError(t, store.Update(t.Context(), func(b *state.Files) error {
		return errors.Join(
			b.Activate(state.Activation{EID: "forged", UID: 54321, Username: "alice", PID: 7, At: at("12:00:00")}),
			b.Activate(state.Activation{EID: "unknown", UID: 54322, Username: "bob", PID: 8, At: at("12:00:00")}))
	}))
	files, err := store.Read(t.Context())
	require.ErrorIs(t, err, state.ErrNoDevices)
	require.Empty(t, files.Environment("forged").Username)
	require.True(t, files.Environment("forged").OwnerMismatch)
	require.EqualValues(t, "bob", files.Environment("unknown").Username)
	require.False(t, files.Environment("unknown").OwnerMismatch)
}

func TestAFileThatMayNotBeRead(t *testing.T) {
	proctest.NeedRoot(t) // to become another user
	dir := recordedFolder(t)
	require.NoError(t, os.Chmod(filepath.Join(dir, "envs.json"), 0o600))
	output, err := asUser(child(t.Context(), "owners", dir), 4001).CombinedOutput()
	require.Error(t, err)
	require.Contains(t, string(output), "envs.json cannot be read by uid 4001: its owner or root has to `chmod a+rw` it")
	requireRecorded(t, dir, "envs.json")
}

func TestCorruptFilesAreLeft(t *testing.T) {
	recordedEnvs := proctest.ReadText(t, filepath.Join(recorded, "envs.json"))
	for name, content := range map[string]string{
		"empty":                 "",
		"cut":                   recordedEnvs[:len(recordedEnvs)/2],
		"garbage":               "\x00\xff garbage",
		"another format":        `{"envs": 7}`,
		"not even of genv 0.9":  `{"envs": {"7": {"eid": "7"}}}`,
		"a key of the future":   `{"envs": [], "version": 2}`,
		"a nesting without end": `{"envs": ` + string(make([]byte, 1<<20)),
	} {
		t.Run(name, func(t *testing.T) {
			dir := recordedFolder(t)
			put(t, dir, "envs.json", content)
			changed := time.Date(2026, 11, 20, 21, 10, 33, 0, time.UTC)
			require.NoError(t, os.Chtimes(filepath.Join(dir, "envs.json"), changed, changed))
			store := disk.New(dir, disk.Config{System: &fakeSystem{}, Now: func() time.Time { return changed }})

			_, err := store.Read(t.Context())
			require.ErrorIs(t, err, disk.ErrCorrupt)
			require.ErrorIs(t, store.Update(t.Context(), enter(7)), disk.ErrCorrupt)
			path := filepath.Join(dir, "envs.json")
			require.Regexp(t, "^"+regexp.QuoteMeta(path+": "+disk.ErrCorrupt.Error()+": "), err)
			require.Equal(t, content, proctest.ReadText(t, path), "it stays as it is")
			require.Len(t, proctest.Names(t, dir), 3)
		})
	}
}

// TestAnOddEntryHidesNoOther: what can't be read is left out and named. Whose an
// environment is says the kernel then: no honest user loses it, and no user gains one.
func TestAnOddEntryHidesNoOther(t *testing.T) {
	owner := livingOf
	mine := strings.Replace(one, `"eid":"1"`, `"eid":"70"`, 1)
	for name, row := range map[string]struct {
		odd     string // the entry
		eid     snapshot.EnvID
		running []system.RunningProcess
		uid     snapshot.UID
	}{
		"a control character in a name":     {odd: strings.Replace(mine, `"name":null`, `"name":"a\u0001b"`, 1), eid: "70", uid: 1},
		"a name of 5,000 bytes":             {odd: strings.Replace(mine, `"name":null`, `"name":"`+strings.Repeat("x", 5000)+`"`, 1), eid: "70", uid: 1},
		"a control character in an id":      {odd: strings.Replace(mine, `"70"`, `"7\u0007"`, 1), eid: snapshot.Claim("7\a"), uid: 1},
		"no date":                           {odd: strings.Replace(mine, `"20/11/2026 21:10:33"`, `5`, 1), eid: "70", uid: 1},
		"a pid that is a word":              {odd: strings.Replace(mine, `[1]`, `[1,"x"]`, 1), eid: "70", uid: 1},
		"a uid that is a word: the shell's": {odd: strings.Replace(mine, `"uid":1`, `"uid":"root"`, 1), eid: "70", uid: 1},
		"a uid that is a word: unowned":     {odd: strings.Replace(strings.Replace(mine, `"uid":1`, `"uid":"root"`, 1), `[1]`, `[]`, 1)},
		"it isn't an object":                {odd: `5`},
		"it is listed twice":                {odd: one, eid: "1", uid: 1},
	} {
		t.Run(name, func(t *testing.T) {
			store, machine, dir, _ := kept(t)
			machine.running = row.running
			machine.processes = map[snapshot.PID]system.ProcessStatus{1: owner(1), 50: owner(alice), 51: owner(bob)}
			put(t, dir, "envs.json", `{"envs": [`+one+`,`+row.odd+`]}`)
			files := read(t, store)
			require.NotNil(t, files.Environment("1"))
			require.Contains(t, strings.Join(files.Warnings, "\n"), "envs.json: ")
			if row.eid != "" {
				require.NotNil(t, files.Environment(row.eid))
				require.Equal(t, row.uid, files.Environment(row.eid).UID)
			}
			others := map[snapshot.EnvID]bool{"1": true, cmp.Or(row.eid, "1"): true}
			require.Len(t, files.Environments, len(others))
			again := read(t, store)
			require.Equal(t, string(proctest.Try(files.Encode(state.Envs)).OK(t)), string(proctest.Try(again.Encode(state.Envs)).OK(t)))
		})
	}
}

const one = `{"eid":"1","uid":1,"creation":"20/11/2026 21:10:33","username":null,` +
	`"config":{"name":null,"gpu_memory":null,"gpus":null},"pids":[1],"kernel_ids":[]}`

func TestAFileThatIsBeingWrittenIsReadOnceItIsWhole(t *testing.T) {
	dir := recordedFolder(t)
	whole := proctest.ReadText(t, filepath.Join(dir, "envs.json"))
	put(t, dir, "envs.json", "")
	store, tries := everyoneLives(dir), 0
	store.OnStep(func(step string) {
		require.Equal(t, "unreadable envs.json", step)
		tries++
		put(t, dir, "envs.json", whole[:len(whole)*tries/2])
	})
	files := read(t, store)
	require.Equal(t, 2, tries)
	require.Len(t, files.Environments, 2)
}

// whileSwapping runs look again and again for a moment, while another process
// changes things back and forth as fast as can be.
func whileSwapping(t *testing.T, swap, look func()) {
	ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
	defer cancel()
	done := make(chan struct{})
	go func() {
		defer close(done)
		for ctx.Err() == nil {
			swap()
			runtime.Gosched()
		}
	}()
	for ctx.Err() == nil {
		look()
	}
	<-done
}

// Where fs.protected_symlinks is off, root must not be led elsewhere by who owns the folder and puts a link in its
// place, between a look at the link and the opening.
func TestALinkThatComesAndGoesInTheFoldersPlaceIsNeverFollowed(t *testing.T) {
	proctest.NeedRoot(t)
	const theirs = 4001
	dir, elsewhere := sharedDir(t), t.TempDir()
	link := dir + ".link"
	require.NoError(t, os.MkdirAll(dir, 0o777))
	require.NoError(t, os.Symlink(elsewhere, link))
	require.NoError(t, os.Lchown(link, theirs, theirs))
	store := everyoneLives(dir)
	whileSwapping(t,
		func() { _ = unix.Renameat2(unix.AT_FDCWD, dir, unix.AT_FDCWD, link, unix.RENAME_EXCHANGE) },
		func() { _, _ = store.Read(t.Context()) })
	require.Empty(t, proctest.Names(t, elsewhere))
}
