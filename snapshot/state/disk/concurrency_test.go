package disk_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/seed-3119e985/genv/snapshot"
	"github.com/seed-3119e985/genv/snapshot/proc/proctest"
	"github.com/seed-3119e985/genv/snapshot/state"
	"github.com/seed-3119e985/genv/snapshot/state/disk"
)

// The concurrency run: processes of several users on one folder, and a writer that works in the way of 1.4.3.
const (
	users     = 4
	processes = 8
)

func TestNoUpdateIsLostAmongManyProcessesAnd143(t *testing.T) { updateTogether(t, 96) }

func TestSoakUpdates(t *testing.T) {
	proctest.Soak(t)
	updateTogether(t, 8000)
}

func updateTogether(t *testing.T, operations int) {
	dir := sharedDir(t)
	register(t, everyoneLives(dir), 8)

	old := child(t.Context(), "legacy", dir)
	var oldOutput bytes.Buffer
	old.Stdout, old.Stderr = &oldOutput, &oldOutput
	stop := proctest.Try(old.StdinPipe()).OK(t)
	require.NoError(t, old.Start())

	var wg sync.WaitGroup
	outputs, failures := make([][]byte, processes), make([]error, processes)
	for i := range processes {
		uid := os.Geteuid()
		if uid == 0 {
			uid = 4000 + i%users
		}
		cmd := asUser(child(t.Context(), "worker", dir, strconv.Itoa(i), strconv.Itoa(operations/processes)), uid)
		wg.Go(func() { outputs[i], failures[i] = cmd.CombinedOutput() })
	}
	wg.Wait()
	require.NoError(t, stop.Close())
	require.NoError(t, old.Wait(), oldOutput.String())
	for i := range processes {
		require.NoError(t, failures[i], string(outputs[i]))
	}
	t.Logf("the writer in the way of 1.4.3: %s", &oldOutput)

	files := read(t, everyoneLives(dir))
	require.NoError(t, exclusive(files))
	require.Len(t, files.Environments, processes+1, "each worker leaves one environment, and so does the old writer")
	for i := range processes {
		require.NotNil(t, files.Environment(workerEID(i)), "worker %d", i)
	}
}

func workerEID(i int) snapshot.EnvID { return snapshot.EnvID("worker-" + strconv.Itoa(i)) }

// clerk is a worker's own account of what it did, against which it checks the files: what differs is a lost update.
type clerk struct {
	store  *disk.Store
	number int
	eid    snapshot.EnvID
	pids   []snapshot.PID
	has    []snapshot.DeviceIndex
}

// worker is a child: it activates, attaches, detaches and deactivates.
func worker(args []string) error {
	i, count := number(args[1]), number(args[2])
	// flock(2) is not fair, and this run is not about who has to wait.
	store := disk.New(args[0], disk.Config{System: &fakeSystem{}, LockTimeout: 5 * time.Minute})
	c := &clerk{store: store, number: i, eid: workerEID(i)}
	for n := range count {
		next := *c
		err := c.store.Update(context.Background(), func(b *state.Files) error {
			if err := c.agrees(b); err != nil {
				return err
			}
			next = clerk{c.store, c.number, c.eid, slices.Clone(c.pids), slices.Clone(c.has)} // it may be called again
			return next.act(b, n)
		})
		if err != nil {
			return fmt.Errorf("operation %d: %w", n, err)
		}
		*c = next
	}
	return c.store.Update(context.Background(), func(b *state.Files) error {
		if err := c.agrees(b); err != nil {
			return err
		}
		return c.activate(b, count+1) // leave one behind for the last check
	})
}

// act is one of six operations in turn. What an update was told counts only if
// it went through; an error ends the worker, so the account is never ahead.
func (c *clerk) act(b *state.Files, n int) error {
	switch n % 6 {
	case 0, 1:
		return c.activate(b, n)
	case 2:
		return c.attach(b, state.AttachRequest{Count: 1 + n%2})
	case 3:
		return c.attach(b, state.AttachRequest{Count: 2, Memory: snapshot.MustMemory("30g")})
	case 4:
		if len(c.has) > 0 {
			c.has = b.Detach(c.eid, c.has[0])
		}
		return nil
	default:
		for _, pid := range c.pids {
			if env := b.EnvironmentOf(pid); env == nil || env.EID != c.eid {
				return fmt.Errorf("process %d was not in %s", pid, c.eid)
			}
			b.Deactivate(pid)
		}
		c.pids, c.has = nil, nil
		return nil
	}
}

func (c *clerk) activate(b *state.Files, n int) error {
	pid := snapshot.PID(100_000*(c.number+1) + n)
	c.pids = append(c.pids, pid)
	return b.Activate(state.Activation{EID: c.eid, UID: snapshot.UID(os.Getuid()), PID: pid, At: at("12:00:00")})
}

func (c *clerk) attach(b *state.Files, r state.AttachRequest) error {
	r.EID, r.At = c.eid, at("12:00:01")
	has, err := b.Attach(r)
	if errors.Is(err, state.ErrUnavailable) {
		return nil // others have them
	}
	c.has = has
	return err
}

func (c *clerk) agrees(b *state.Files) error {
	var pids []snapshot.PID
	if env := b.Environment(c.eid); env != nil {
		pids = env.PIDs
	}
	if fmt.Sprint(pids) != fmt.Sprint(c.pids) {
		return fmt.Errorf("an update is lost: %s has processes %v, not %v", c.eid, pids, c.pids)
	}
	if has := b.AttachedTo(c.eid); fmt.Sprint(has) != fmt.Sprint(c.has) {
		return fmt.Errorf("an update is lost: %s has devices %v, not %v", c.eid, has, c.has)
	}
	return exclusive(b)
}

// legacy is a child that writes as 1.4.3 does, until its stdin is closed: under the lock, each file truncated and
// written in place. It counts in an environment of its own, and ends with an error when a count is lost.
func legacy(args []string) error {
	stopped := make(chan struct{})
	go func() {
		_, _ = io.Copy(io.Discard, os.Stdin)
		close(stopped)
	}()
	for count := 1; ; count++ {
		if err := legacyTurn(args[0], count); err != nil {
			return err
		}
		select {
		case <-stopped:
			fmt.Printf("%d turns", count)
			return nil
		case <-time.After(pace):
		}
	}
}

// pace leaves the lock to others between two turns: flock(2) is not fair, and a loop without a pause would have it all
// the time. A real 1.4.3 takes 20 times as long to start.
const pace = 10 * time.Millisecond

func legacyTurn(dir string, count int) error {
	lock, err := os.Open(filepath.Join(dir, "genv.lock"))
	if err != nil {
		return err
	}
	defer lock.Close()
	if err := unix.Flock(int(lock.Fd()), unix.LOCK_EX); err != nil {
		return err
	}
	envsPath, devicesPath := filepath.Join(dir, "envs.json"), filepath.Join(dir, "devices.json")
	data, err := os.ReadFile(envsPath)
	if err != nil {
		return err
	}
	envs, err := snapshot.DecodeEnvironments(data)
	if err != nil {
		return fmt.Errorf("envs.json is unreadable: %w", err)
	}
	files := state.Files{Environments: envs}
	mine := files.Environment("1.4.3")
	switch {
	case mine == nil && count > 1, mine != nil && *mine.Config.GPUs != count-1:
		return fmt.Errorf("count %d is lost", count-1)
	case mine == nil:
		files.Environments = append(files.Environments, snapshot.Environment{
			EID: "1.4.3", Creation: at("11:00:00"), PIDs: []snapshot.PID{99}, Config: snapshot.EnvConfig{GPUs: &count},
		})
	default:
		mine.Config.GPUs = &count
	}
	if data, err = snapshot.EncodeEnvironments(files.Environments); err != nil {
		return err
	}
	if err := writeInPlace(envsPath, data); err != nil {
		return err
	}
	if data, err = os.ReadFile(devicesPath); err != nil {
		return err
	}
	if _, err := snapshot.DecodeDevices(data); err != nil {
		return fmt.Errorf("devices.json is unreadable: %w", err)
	}
	return writeInPlace(devicesPath, data)
}

// writeInPlace truncates a file and writes it in two halves.
func writeInPlace(path string, data []byte) error {
	file, err := os.OpenFile(path, os.O_WRONLY|os.O_TRUNC, 0)
	if err != nil {
		return err
	}
	half := len(data) / 2
	_, first := file.Write(data[:half])
	_, second := file.Write(data[half:])
	return errors.Join(first, second, file.Close())
}

// FuzzStateFiles lets a folder hold any envs.json: it is read, or it is refused and left as it is.
func FuzzStateFiles(f *testing.F) {
	envs := proctest.ReadFile(f, filepath.Join(recorded, "envs.json"))
	f.Add(envs)
	f.Add([]byte(`{"envs": [`))
	proctest.ShortenQuickly(f)
	f.Fuzz(func(t *testing.T, envs []byte) {
		dir := proctest.MemoryDir(t)
		put(t, dir, "envs.json", string(envs))
		put(t, dir, "devices.json", `{"devices": []}`)
		store, ctx := impatient(t, dir)
		_, err := store.ReadRaw(ctx)
		if err != nil {
			require.ErrorIs(t, err, disk.ErrCorrupt)
		}
		store, ctx = impatient(t, dir)
		_, again := store.Read(ctx)
		require.Equal(t, err == nil, again == nil)
		if err != nil {
			require.Equal(t, string(envs), proctest.ReadText(t, filepath.Join(dir, "envs.json")))
		}
	})
}

// impatient is a Store, and a context to use it with, that reads a corrupt file
// once: it would pause 40 ms between its attempts, and most cases are corrupt.
func impatient(t *testing.T, dir string) (*disk.Store, context.Context) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	t.Cleanup(cancel)
	store := everyoneLives(dir)
	store.OnStep(func(step string) {
		if strings.HasPrefix(step, "unreadable ") {
			cancel()
		}
	})
	return store, ctx
}
