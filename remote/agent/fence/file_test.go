package fence_test

import (
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-3119e985/genv/remote/agent/fence"
)

func newFile(t *testing.T) *fence.LeaseFile {
	return &fence.LeaseFile{Path: filepath.Join(t.TempDir(), "root", "controller.json"), Now: func() time.Time { return now }}
}

func TestFile(t *testing.T) {
	f := newFile(t)
	require.NoError(t, f.Admit(nil))
	require.NoDirExists(t, filepath.Dir(f.Path), "a run without a claim leaves nothing behind")
	require.NoError(t, f.Admit(request(election, 2, "b")))
	written, err := os.ReadFile(f.Path)
	require.NoError(t, err)
	require.Error(t, f.Admit(request(election, 1, "a")))
	require.Error(t, f.Admit(nil))
	require.NoError(t, f.Admit(request(election, 2, "b")))
	again, err := os.ReadFile(f.Path)
	require.NoError(t, err)
	require.Equal(t, string(written), string(again))
	require.NoError(t, f.Admit(request(election, 3, "a")), "another one reads it from the disk")
	require.Error(t, f.Admit(request(election, 2, "b")))
	require.Error(t, f.Admit(taking(request(run, 1, "c"))), "it gets no lease, so the one before could come back")
	require.Error(t, f.Admit(request(folder, 1, "d")))
	require.NoError(t, f.GiveBack(request(election, 3, "a")))
	require.NoError(t, f.Admit(request(run, 1, "c")))
	require.Error(t, f.Admit(request(election, 2, "b")), "the epoch is still known")
	require.Error(t, f.Admit(request(folder, 1, "d")))
	require.NoError(t, f.Admit(taking(request(folder, 1, "d"))))
}

// What changes nothing needs no lock: not in a folder that became read-only, and not while another genv hangs.
func TestFileWithoutItsLock(t *testing.T) {
	f := newFile(t)
	require.NoError(t, f.Admit(request(folder, 2, "a")))
	require.NoError(t, os.Remove(f.Path+".lock"))
	require.NoError(t, os.Mkdir(f.Path+".lock", 0o700))
	require.NoError(t, f.Admit(request(folder, 2, "a")))
	var refused *fence.RefusedError
	require.ErrorAs(t, f.Admit(nil), &refused)
	require.ErrorAs(t, f.Admit(request(folder, 1, "a")), &refused)
	require.ErrorContains(t, f.Admit(request(folder, 3, "a")), "so nothing is done")
}

// While something is done for a controller, no other one is admitted.
func TestHold(t *testing.T) {
	f := newFile(t)
	for _, c := range []*fence.LeaseRequest{nil, request(run, 1, "a")} {
		release, err := f.Hold(c)
		require.NoError(t, err, "nothing is noted")
		release()
	}
	_, err := f.Hold(request(folder, 1, "a"))
	require.ErrorContains(t, err, "so nothing is done", "it was never admitted")
	require.NoError(t, f.Admit(request(folder, 1, "a")))
	release, err := f.Hold(request(folder, 1, "a"))
	require.NoError(t, err)
	again, err := f.Hold(request(folder, 1, "a"))
	require.NoError(t, err, "orders don't wait for each other")
	admitted := make(chan error)
	go func() { admitted <- f.Admit(request(folder, 2, "a")) }()
	again()
	written, err := os.ReadFile(f.Path)
	require.NoError(t, err)
	require.Contains(t, string(written), `"epoch":1`)
	release()
	require.NoError(t, <-admitted)
	var refused *fence.RefusedError
	_, err = f.Hold(request(folder, 1, "a"))
	require.ErrorAs(t, err, &refused)
	_, err = f.Hold(request(folder, 3, "a"))
	require.ErrorContains(t, err, "so nothing is done", "a later start is admitted by Admit")
	require.NoError(t, f.GiveBack(request(folder, 2, "a")))
	_, err = f.Hold(request(folder, 2, "a"))
	require.Error(t, err, "it said that it ended")
	require.NoError(t, os.Remove(f.Path))
	_, err = f.Hold(request(folder, 2, "a"))
	require.Error(t, err)
}

// Of many controllers with different epochs, which ask at the same time, the highest is the one that is left.
func TestFileAtTheSameTime(t *testing.T) {
	f := newFile(t)
	var group sync.WaitGroup
	for epoch := range uint64(20) {
		group.Go(func() { _ = f.Admit(request(election, epoch+1, "a")) })
	}
	group.Wait()
	require.NoError(t, f.Admit(request(election, 20, "a")))
	require.Error(t, f.Admit(request(election, 19, "a")))
}

// What can't be read or written is not known, and so nothing is admitted.
func TestFileThatCannotBeUsed(t *testing.T) {
	for name, spoil := range map[string]func(f *fence.LeaseFile) error{
		"empty":          func(f *fence.LeaseFile) error { return os.WriteFile(f.Path, nil, 0o600) },
		"cut":            func(f *fence.LeaseFile) error { return os.Truncate(f.Path, 20) },
		"another schema": func(f *fence.LeaseFile) error { return os.WriteFile(f.Path, []byte(`{"schema":"x/1"}`), 0o600) },
		"no epoch": func(f *fence.LeaseFile) error {
			return os.WriteFile(f.Path, []byte(`{"schema":"genv.host.controller/1","source":"folder:a","controller":"a"}`), 0o600)
		},
		"a folder":        func(f *fence.LeaseFile) error { return os.Mkdir(f.Path, 0o700) },
		"too large":       func(f *fence.LeaseFile) error { return os.Truncate(f.Path, 1<<20) },
		"a folder of all": func(f *fence.LeaseFile) error { return os.Chmod(filepath.Dir(f.Path), 0o777) },
		"a symbolic link": func(f *fence.LeaseFile) error { return os.Symlink("/dev/null", f.Path) },
	} {
		t.Run(name, func(t *testing.T) {
			f := newFile(t)
			require.NoError(t, f.Admit(request(folder, 1, "a")))
			if name == "a folder" || name == "a symbolic link" {
				require.NoError(t, os.Remove(f.Path))
			}
			require.NoError(t, spoil(f))
			err := f.Admit(request(folder, 2, "a"))
			require.ErrorContains(t, err, "so nothing is done")
			require.Error(t, f.Admit(nil))
		})
	}
}

func TestPath(t *testing.T) {
	env := map[string]string{"GENV_ROOT_DIR": "/r"}
	get := func(key string) string { return env[key] }
	require.Equal(t, "/r/controller.json", fence.Path(get))
	env["GENV_TMPDIR"] = "/other"
	require.NotEqual(t, "/r/controller.json", fence.Path(get), "each state folder has its own")
	require.Equal(t, "/r", filepath.Dir(fence.Path(get)))
}

func TestTokens(t *testing.T) {
	run, now := filepath.Join(t.TempDir(), "run"), time.Now()
	tokens := func(folder, own string) []string {
		others, err := fence.Tokens(run, folder, own, now)
		require.NoError(t, err)
		return others
	}
	require.Empty(t, tokens("8:1/5", "a"))
	require.Equal(t, []string{"a"}, tokens("8:1/5", "b"))
	require.Empty(t, tokens("8:1/6", "c"), "another state folder")
	info, err := os.Stat(filepath.Join(run, "tokens"))
	require.NoError(t, err)
	require.Equal(t, os.FileMode(0o700), info.Mode().Perm(), "no other account sees them")
	now = now.Add(6 * time.Minute)
	require.Equal(t, []string{"a"}, tokens("8:1/5", "b"), "a conversation that has ended proves for some time what it showed")
	now = now.Add(6 * time.Minute)
	require.Equal(t, []string{"b"}, tokens("8:1/5", "d"))
	require.Equal(t, []string{"b", "d"}, tokens("8:1/5", "a"), "one that is quiet for long")
	require.NoError(t, os.Chmod(run, 0o777))
	_, err = fence.Tokens(run, "8:1/5", "a", now)
	require.Error(t, err, "others can write there")
}

func FuzzParse(f *testing.F) {
	f.Add([]byte(`{"schema":"genv.host.controller/1","source":"folder:a","epoch":1,"controller":"a","since":"2026-03-01T10:00:00Z"}`))
	f.Add([]byte(`{"schema":"genv.host.controller/1","source":"election:1/k","epoch":18446744073709551615,"controller":"a","name":"\u001b"}`))
	f.Add([]byte(`null`))
	f.Fuzz(func(t *testing.T, data []byte) {
		lease, err := fence.Parse(data, "file")
		if err != nil {
			require.Nil(t, lease)
			return
		}
		require.NoError(t, lease.Check())
		_, err = lease.Admit(nil, now)
		if err != nil {
			require.NotContains(t, err.Error(), "\x1b")
		}
	})
}
