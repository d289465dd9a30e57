package fence

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/seed-3119e985/genv/snapshot/state/disk"
	"github.com/seed-3119e985/genv/snapshot/state/folder"
)

// LeaseFile has the lease of a host. It is safe for concurrent use, even by several processes.
type LeaseFile struct {
	Path string // see Path
	Now  func() time.Time

	mu     sync.Mutex
	synced [3]int64 // the version that is known to be synced to the disk
	data   []byte   // that was read last
	lease  *Lease   // in data
}

// Path is the file in root's folder.
func Path(getenv func(string) string) string {
	return filepath.Join(disk.RootDir(getenv), disk.RootFile(getenv, "controller"))
}

const (
	schema     = "genv.host.controller/1"
	maxBytes   = 64 << 10
	lockWithin = 5 * time.Second // another genv only writes a small file under the lock
)

type storedLease struct {
	Schema string `json:"schema"`
	Lease
}

// Admit decides on a request, nil for none. Without an error the controller may act, and its lease is on the disk. The
// error is a *RefusedError, or says why the file can't be read or written.
func (f *LeaseFile) Admit(r *LeaseRequest) error {
	if r != nil {
		if err := r.Check(); err != nil {
			return err
		}
	}
	return unlessRefused(f.update(r.Leases(), r, func(l *Lease) (*Lease, error) { return l.Admit(r, f.Now()) }))
}

// Given returns the last lease; nil for none.
func (f *LeaseFile) Given() (*Lease, error) {
	var given *Lease
	err := f.update(false, nil, func(l *Lease) (*Lease, error) { given = l; return l, nil })
	return given, err
}

// GiveBack notes the end of the controller with this request, if it has the lease.
func (f *LeaseFile) GiveBack(r *LeaseRequest) error {
	return f.update(false, nil, func(l *Lease) (*Lease, error) { return l.GiveBack(r), nil })
}

// Hold admits a request again. Until release is called, the lease can't change, so that no other controller begins. The
// error is as of Admit.
func (f *LeaseFile) Hold(r *LeaseRequest) (release func(), err error) {
	var lock *os.File // nil while no lease can be given
	var lease *Lease
	dir, err := folder.OpenTrusted(filepath.Dir(f.Path))
	switch {
	case errors.Is(err, fs.ErrNotExist):
		err = nil
	case err == nil:
		defer dir.Close()
		name := filepath.Base(f.Path)
		if lock, err = dir.LockShared(name+".lock", lockWithin); err == nil || errors.Is(err, unix.EROFS) {
			lease, err = f.read(dir)
		}
	}
	if err == nil {
		err = checkHeld(lease, r, f.Now())
	}
	if err != nil {
		_ = lock.Close()
		return nil, unlessRefused(err)
	}
	return func() { _ = lock.Close() }, nil
}

func checkHeld(l *Lease, r *LeaseRequest, now time.Time) error {
	_, err := l.Admit(r, now)
	if err == nil && r.Leases() && (!l.isOf(r) || l.GivenBack) {
		return errors.New("this controller doesn't act on the host any more")
	}
	return err
}

func unlessRefused(err error) error {
	if _, refused := errors.AsType[*RefusedError](err); refused || err == nil {
		return err
	}
	return fmt.Errorf("which controller may act on this host is not known, so nothing is done: %w", err)
}

// update changes the lease under the lock. Without a change it takes none: a read-only folder, or a genv that hangs,
// must not stop it. For the same reason it need not succeed in renewing the lease of r's controller. Without create it
// makes no folder.
func (f *LeaseFile) update(create bool, r *LeaseRequest, change func(*Lease) (*Lease, error)) error {
	open := folder.OpenTrusted
	if create {
		open = folder.MakeTrusted
	}
	dir, err := open(filepath.Dir(f.Path))
	if errors.Is(err, fs.ErrNotExist) && !create {
		return nil
	}
	if err != nil {
		return err
	}
	defer dir.Close()
	dir.Spare = true
	lease, next, err := f.changed(dir, change)
	switch {
	case err != nil || next == lease:
		return err
	case !lease.isOf(r) || lease.GivenBack:
		return f.replace(dir, lockWithin, change)
	}
	if refused, ok := errors.AsType[*RefusedError](f.replace(dir, 0, change)); ok {
		return refused
	}
	return nil
}

func (f *LeaseFile) changed(dir *folder.Folder, change func(*Lease) (*Lease, error)) (lease, next *Lease, err error) {
	if lease, err = f.read(dir); err == nil {
		next, err = change(lease)
	}
	return lease, next, err
}

func (f *LeaseFile) replace(dir *folder.Folder, within time.Duration, change func(*Lease) (*Lease, error)) error {
	name := filepath.Base(f.Path)
	lock, err := dir.Lock(name+".lock", within)
	if err != nil {
		return err
	}
	defer lock.Close()
	lease, next, err := f.changed(dir, change) // again, since another genv may have changed it
	if err != nil || next == lease {
		return err
	}
	dir.RemoveLeftovers(name)
	return f.file().Put(dir, storedLease{schema, *next})
}

// read reads the lease; nil for none. A damaged one is an error, since it may have been of a higher epoch. The lease is
// synced to the disk, even if its writer was killed before it synced the folder.
func (f *LeaseFile) read(dir *folder.Folder) (*Lease, error) {
	name := filepath.Base(f.Path)
	data, st, err := dir.Read(name, maxBytes)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if !bytes.Equal(data, f.data) || f.lease == nil {
		s, err := f.file().Decode(data, nil)
		if err != nil {
			return nil, fmt.Errorf("%s is damaged: %w: remove it if only one controller runs", dir.Join(name), err)
		}
		f.data, f.lease = data, &s.Lease
	}
	if v := [...]int64{int64(st.Ino), st.Ctim.Sec, st.Ctim.Nsec}; v != f.synced { //nolint:gosec // it is only compared
		if err := dir.Sync(); err != nil {
			return nil, err
		}
		f.synced = v
	}
	return f.lease, nil
}

func (f *LeaseFile) file() folder.Note[storedLease] {
	return folder.Note[storedLease]{
		Name: filepath.Base(f.Path), Max: maxBytes, Mode: 0o600, Durable: true, Invalid: errDamaged,
		Check: func(s *storedLease) error { return cmp.Or(folder.CheckSchema(s.Schema, schema), s.Check()) },
	}
}

var errDamaged = errors.New("it doesn't say which controller acts")

// tokensFor is how long after its last request a token is kept and counts as proof.
const tokensFor = 10 * time.Minute

// Tokens keeps a conversation's token as a file that only root can list, and returns the other tokens for the same
// state folder. Two names lead to one machine if one shows the token of the other.
func Tokens(run, stateFolder, own string, now time.Time) ([]string, error) {
	d, err := folder.MakeTrusted(run)
	if err != nil {
		return nil, err
	}
	d.Close()
	dir := filepath.Join(run, "tokens", strings.ReplaceAll(stateFolder, "/", "."))
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, err
	}
	if file := filepath.Join(dir, own); os.Chtimes(file, now, now) != nil {
		if err := cmp.Or(os.WriteFile(file, nil, 0o600), os.Chtimes(file, now, now)); err != nil {
			return nil, err
		}
	}
	entries, err := os.ReadDir(dir)
	others := []string{}
	for _, e := range entries {
		info, err := e.Info()
		switch {
		case err != nil || e.Name() == own:
		case now.Sub(info.ModTime()).Abs() > tokensFor:
			_ = os.Remove(filepath.Join(dir, e.Name()))
		default:
			others = append(others, e.Name())
		}
	}
	return others, err
}
