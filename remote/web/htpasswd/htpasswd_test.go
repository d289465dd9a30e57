package htpasswd

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
	"golang.org/x/crypto/bcrypt"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// clock is a clock that tests move.
type clock struct {
	mu  sync.Mutex
	now time.Time
}

func (c *clock) Now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.now
}

func (c *clock) pass(d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.now = c.now.Add(d)
}

func entry(t *testing.T, user, password string, cost int) string {
	hash, err := bcrypt.GenerateFromPassword([]byte(password), cost)
	require.NoError(t, err)
	return user + ":" + strings.Replace(string(hash), "$2a$", "$2y$", 1) + "\n" // as htpasswd writes it
}

// write replaces a file, as htpasswd does not but editors do.
func write(t *testing.T, path, content string) {
	require.NoError(t, os.WriteFile(path+".new", []byte(content), 0o600))
	require.NoError(t, os.Rename(path+".new", path))
}

func right(t *testing.T, f *File, user, password string) bool {
	ok, err := f.Check(t.Context(), user, password)
	require.NoError(t, err)
	return ok
}

func TestCheck(t *testing.T) {
	path := filepath.Join(t.TempDir(), "htpasswd")
	write(t, path, "# users\n\n"+entry(t, "alice", "one", 4)+entry(t, "bob", "two", 5))
	c := &clock{now: time.Now()}
	f, err := Open(path, c.Now)
	require.NoError(t, err)
	for range 3 { // also when it is remembered
		require.True(t, right(t, f, "alice", "one"))
		require.True(t, right(t, f, "bob", "two"))
		for _, wrong := range [][2]string{{"alice", "two"}, {"alice", ""}, {"alice", "one "}, {"Alice", "one"}, {"", ""}, {"eve", "one"}, {"alice one", ""}, {"alice", strings.Repeat("x", 999)}} {
			require.False(t, right(t, f, wrong[0], wrong[1]), wrong)
		}
	}
	require.Len(t, f.right, 2)

	write(t, path, entry(t, "alice", "new", 4))
	require.True(t, right(t, f, "alice", "one"), "it is looked at once a second")
	c.pass(time.Second)
	require.False(t, right(t, f, "alice", "one"))
	require.False(t, right(t, f, "bob", "two"), "who was removed")
	require.True(t, right(t, f, "alice", "new"))

	write(t, path, "alice:{SHA}x\n")
	c.pass(time.Minute)
	require.True(t, right(t, f, "alice", "new"), "a file that isn't right changes nothing")
	require.NoError(t, os.Remove(path))
	c.pass(time.Minute)
	require.True(t, right(t, f, "alice", "new"))
	require.False(t, right(t, f, "bob", "two"))
	write(t, path, entry(t, "carol", "three", 4))
	c.pass(time.Minute)
	require.True(t, right(t, f, "carol", "three"))
	require.False(t, right(t, f, "alice", "new"))
}

// TestRemembered: a password that was right costs nothing for some minutes.
func TestRemembered(t *testing.T) {
	path := filepath.Join(t.TempDir(), "htpasswd")
	write(t, path, entry(t, "alice", "one", 4))
	c := &clock{now: time.Now()}
	f, err := Open(path, c.Now)
	require.NoError(t, err)
	require.True(t, right(t, f, "alice", "one"))
	f.running <- struct{}{} // no check can run any more
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	require.True(t, right(t, f, "alice", "one"))
	for _, password := range []string{"wrong", "one "} {
		_, err = f.Check(ctx, "alice", password)
		require.ErrorIs(t, err, context.Canceled)
	}
	c.pass(rightFor + time.Second)
	_, err = f.Check(ctx, "alice", "one")
	require.ErrorIs(t, err, context.Canceled, "it is checked again")
	<-f.running
	for range cap(f.waiting) {
		f.waiting <- struct{}{}
	}
	_, err = f.Check(t.Context(), "alice", "one")
	require.ErrorIs(t, err, ErrBusy)
}

// TestUnknownUsers: a check costs what it costs for those who exist.
func TestUnknownUsers(t *testing.T) {
	path := filepath.Join(t.TempDir(), "htpasswd")
	write(t, path, entry(t, "alice", "one", 7))
	f, err := Open(path, time.Now)
	require.NoError(t, err)
	known, _, _ := f.lookUp("alice", "x")
	unknown, _, _ := f.lookUp("eve", "x")
	costs := func(hash []byte) int {
		cost, err := bcrypt.Cost(hash)
		require.NoError(t, err)
		return cost
	}
	require.Equal(t, costs(known), costs(unknown))
	require.NotEqual(t, known, unknown)
}

func TestManyAtOnce(t *testing.T) {
	path := filepath.Join(t.TempDir(), "htpasswd")
	write(t, path, entry(t, "alice", "one", 4))
	f, err := Open(path, time.Now)
	require.NoError(t, err)
	var all sync.WaitGroup
	for range 20 {
		all.Go(func() {
			ok, err := f.Check(t.Context(), "alice", "one")
			if err != nil || !ok {
				t.Error(ok, err)
			}
		})
	}
	all.Wait()
}

func TestFilesThatAreRefused(t *testing.T) {
	good := entry(t, "alice", "one", 4)
	for content, want := range map[string]string{
		"":                                       "it has no users",
		"# nobody\n":                             "it has no users",
		"alice:$apr1$x$y\n":                      "line 1: not a user with a bcrypt hash: write it with `htpasswd -B`",
		"alice:{SHA}abc=\n":                      "line 1",
		"alice:secret\n":                         "line 1",
		good + "bob\n":                           "line 2",
		":" + strings.SplitN(good, ":", 2)[1]:    "line 1",
		good + good:                              "line 2: the user is there twice",
		good[:40]:                                "line 1",
		strings.Replace(good, "$04$", "$31$", 1): "line 1: a cost of 31 is too slow",
		strings.Repeat("#\n", 1<<20):             "at most 1 MB",
	} {
		path := filepath.Join(t.TempDir(), "htpasswd")
		write(t, path, content)
		_, err := Open(path, time.Now)
		require.ErrorContains(t, err, want)
	}
	_, err := Open(t.TempDir(), time.Now)
	require.Error(t, err)
	_, err = Open(filepath.Join(t.TempDir(), "none"), time.Now)
	require.ErrorIs(t, err, os.ErrNotExist)
}
