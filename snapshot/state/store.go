package state

import (
	"context"
	"errors"
	"time"

	"github.com/seed-3119e985/genv/snapshot"
)

// DefaultDir is where genv keeps its state unless GENV_TMPDIR says otherwise.
const DefaultDir = "/var/tmp/genv"

// DefaultLockTimeout is how long the lock is waited for at most.
const DefaultLockTimeout = 10 * time.Second

// Dir is the folder of the state, from an environment such as os.Getenv.
func Dir(getenv func(string) string) string {
	if dir := getenv("GENV_TMPDIR"); dir != "" {
		return dir
	}
	return DefaultDir
}

// StoreOptions are a Store's seams to the world. The zero StoreOptions are right for a
// real machine.
type StoreOptions struct {
	ProcRoot    string           // where the /proc file system is mounted; "" is /proc
	System      System           // nil is NewSystem(ProcRoot)
	Now         func() time.Time // nil is time.Now; names the copies of corrupt files
	LockTimeout time.Duration    // for the lock on the state files; 0 is DefaultLockTimeout
	// RootDir is the folder of root's own notes and copies, such as RootDir(os.Getenv).
	// Where it is empty there are none: the PIDs are taken for those of this
	// process's namespaces, and what is lost is not restored.
	RootDir string
	// Username returns the name of a uid, or "" if it has none. If it is given, an
	// environment has that name whatever the state file says, and is flagged as
	// OwnerMismatch if the file has another one. It is called without any lock held.
	Username func(context.Context, snapshot.UID) snapshot.Username
}

// Store is the folder in which a host's state is kept. It may be used by any
// number of goroutines and processes at once.
type Store struct {
	dir     string
	root    string
	proc    string
	machine System
	now     func() time.Time
	wait    time.Duration
	name    func(context.Context, snapshot.UID) snapshot.Username
	step    func(string) // for tests: called between the steps of a write
}

// New is the store in a folder, which is made on first use.
func New(dir string, o StoreOptions) *Store {
	s := &Store{dir: dir, root: o.RootDir, proc: o.ProcRoot, machine: o.System, now: o.Now, wait: o.LockTimeout, name: o.Username}
	if s.proc == "" {
		s.proc = realProc
	}
	if s.machine == nil {
		s.machine = NewSystem(s.proc)
	}
	if s.now == nil {
		s.now = time.Now
	}
	if s.wait <= 0 {
		s.wait = DefaultLockTimeout
	}
	s.step = func(string) {}
	return s
}

// Read returns what the state files hold without what is dead: processes and Jupyter kernels
// that are gone, environments in which nothing runs any more, and attachments of
// environments that do not exist. Root's genv also restores what was lost, and
// repairs what keeps other users out. As 1.4.3 does, Read writes the result back
// if anything changed; where it cannot, a warning says so. Where the lock can't be
// had for some seconds, root's genv reads without it and writes nothing. With
// ErrNoDevices the environments are valid all the same.
//
// The error wraps ErrBusy, ErrCorrupt or ErrUnsafe where that is the cause.
func (s *Store) Read(ctx context.Context) (Files, error) {
	return s.readThen(ctx, func(*folder) {})
}

// readThen is Read, and then, under the same lock, a call of inspect.
func (s *Store) readThen(ctx context.Context, inspect func(*folder)) (Files, error) {
	books, err := s.updateOrRead(ctx, func(*Files) error { return nil }, inspect)
	var unwritten *writeError
	if errors.As(err, &unwritten) {
		books.Warnings = append(books.Warnings, "the state could be read but not written: "+err.Error())
		err = nil
	}
	return s.finish(ctx, books, err)
}

// ReadRaw returns what the state files hold, dead parts included,
// and writes nothing to them. It serves --no-cleanup.
func (s *Store) ReadRaw(ctx context.Context) (Files, error) {
	var books Files
	err := s.locked(ctx, func(dir *folder) error {
		read, err := s.load(ctx, dir)
		books = read.books
		return err
	})
	return s.finish(ctx, books, err)
}

// finish does for a reader what needs no lock.
func (s *Store) finish(ctx context.Context, books Files, err error) (Files, error) {
	if err != nil {
		return Files{}, err
	}
	if !books.LivenessUnknown {
		s.flagOwners(ctx, &books)
	}
	if books.Devices == nil {
		err = ErrNoDevices
	}
	return books, err
}

// Update changes the state files under the lock: it reads them as Read does, calls
// change, and writes what is different. An error of change leaves the files as
// they were and is returned as it is; any other error leaves them whole.
func (s *Store) Update(ctx context.Context, change func(*Files) error) error {
	_, err := s.update(ctx, change)
	return err
}

// RegisterDevices registers the devices that nvidia-smi found: all of them when there
// are none yet, otherwise as Files.MergeDevices does. Its notes are among the
// Warnings of the state files that it returns.
func (s *Store) RegisterDevices(ctx context.Context, found []snapshot.Device) (Files, error) {
	books, err := s.update(ctx, func(b *Files) error {
		b.Warnings = append(b.Warnings, b.MergeDevices(found)...)
		return nil
	})
	return s.finish(ctx, books, err)
}

// ResetEnvironments replaces envs.json by one without environments. It gets past a
// corrupt or unsafe file, and is never done unless a user asks for it.
func (s *Store) ResetEnvironments(ctx context.Context) error {
	data, err := snapshot.EncodeEnvironments(nil)
	return s.reset(ctx, content{name: envsFile, new: data}, err)
}

// ResetDevices replaces devices.json by one with the devices that nvidia-smi found
// and no attachments. See ResetEnvironments.
func (s *Store) ResetDevices(ctx context.Context, found []snapshot.Device) error {
	var fresh Files
	fresh.MergeDevices(found)
	data, err := snapshot.EncodeDevices(fresh.Devices)
	return s.reset(ctx, content{name: devicesFile, new: data}, err)
}

func (s *Store) reset(ctx context.Context, c content, err error) error {
	if err != nil {
		return err
	}
	return s.locked(ctx, func(dir *folder) error {
		v := s.look(dir, true)
		defer v.close()
		old := s.loadEach(ctx, dir) // it also keeps copies of what is corrupt
		cause := map[string]error{envsFile: old.envsErr, devicesFile: old.devicesErr}[c.name]
		if errors.Is(cause, ErrUnsafe) && v.writable {
			if err := dir.aside(c.name, s.now()); err != nil {
				return err
			}
		}
		if err := s.replace(dir, []content{c}); err != nil {
			return err
		}
		s.renewCopy(&v, &old, c)
		return nil
	})
}

// renewCopy has root's copy accept a reset: it gets the new content of that file,
// and keeps what it has of the other one if that is lost too.
func (s *Store) renewCopy(v *view, old *loaded, c content) {
	if !v.writable {
		return
	}
	good := s.recallCopy(v)
	envs, devices := old.envs, old.devices
	if envs == nil && good != nil {
		envs = good.envs
	}
	if devices == nil && good != nil {
		devices = good.devices
	}
	if c.name == envsFile {
		envs = c.new
	} else {
		devices = c.new
	}
	_ = v.root.remove(restoredFile)
	s.keepCopy(v, good, envs, devices)
}

// update is one read-modify-write.
func (s *Store) update(ctx context.Context, change func(*Files) error) (books Files, err error) {
	return s.updateWithin(ctx, s.wait, change, func(*folder) {})
}

// updateWithin is update, and then, under the same lock, a call of inspect.
func (s *Store) updateWithin(ctx context.Context, wait time.Duration, change func(*Files) error, inspect func(*folder)) (books Files, err error) {
	err = s.lockedWithin(ctx, wait, func(dir *folder) error {
		v := s.look(dir, false)
		defer v.close()
		at, good := s.machine.Uptime(), s.recallCopy(&v)
		old := s.loadEach(ctx, dir)
		if err := s.restore(dir, &v, good, &old); err != nil {
			return err
		}
		if err := old.err(); err != nil {
			return err
		}
		s.repairModes(dir, &v, &old)
		books = old.books
		known := s.recall(dir, old.envsStamp)
		process, all := once(s.machine.Process), &census{machine: s.machine}
		s.settle(&v, good, &old, &books, &known, process, all)
		books.remains = s.remaining(all)
		err := change(&books)
		books.remains = nil
		if err != nil {
			return err
		}
		envs, devices, err := s.save(dir, &old, &books)
		if err != nil {
			return err
		}
		if s.keepCopy(&v, good, envs, devices) {
			s.noteWhole(&v, at)
		}
		if v.clean {
			s.remember(dir, &books, &known, process)
		}
		books.Warnings = append(books.Warnings, dir.repaired...)
		inspect(dir)
		return nil
	})
	return books, err
}

// settle removes what is dead from what was read, and adds again what was lost,
// unless it is not known what lives.
func (s *Store) settle(v *view, good *lastGood, old *loaded, b *Files, known *identities, process func(snapshot.PID) ProcessStatus, all *census) {
	if !v.clean {
		b.LivenessUnknown, b.foreign = true, v.foreign
		b.Warnings = append(b.Warnings, v.warning)
		return
	}
	if old.envsRestored {
		s.findAgain(v, good, b)
	}
	s.removeDead(b, known, process, all)
	if v.writable && good != nil && !old.envsRestored && !same(good.envs, old.envs) && b.reclaim(good, all) {
		// Whoever lost these has lost those that began after the copy, too.
		s.noteRestoration(v, good)
		s.findAgain(v, good, b)
	}
	b.Restorations = s.restorations(v)
}

// findAgain registers environments that began after the copy.
func (s *Store) findAgain(v *view, good *lastGood, b *Files) {
	everybody := &census{machine: s.machine}
	list, _ := everybody.of()
	b.find(list, s.lastWhole(v, good), snapshot.DateOf(s.now()))
}
