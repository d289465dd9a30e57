package state

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strconv"
	"time"

	"golang.org/x/sys/unix"

	"github.com/seed-3119e985/genv/snapshot"
)

// restore replaces what was lost by the last good copy. Only root's genv does it,
// since only that can see what began after the copy; another one that misses a file
// which the copy of this boot has fails with ErrLost, for missing is not empty.
// The warnings of the state files say what was done.
// The content is only loaded here, and saved later; what is written is a note that
// a file was restored, and a bad file is moved aside if it is in the way.
func (s *Store) restore(dir *folder, v *view, good *lastGood, l *loaded) error {
	if good == nil {
		return nil
	}
	envs := good.envs != nil && lost(v, l.envs, l.envsErr)
	devices := good.devices != nil && lost(v, l.devices, l.devicesErr)
	if !envs && !devices {
		return nil
	}
	if !v.writable {
		return missing(dir, envs)
	}
	s.noteRestoration(v, good) // before anything else: if we are killed later, processes are still spared
	s.step("noted")
	if envs {
		found, err := decodeEnvironments(good.envs)
		if err != nil {
			return fmt.Errorf("root's copy of %s: %w", envsFile, err)
		}
		if err := s.clear(dir, envsFile, l.envsErr, &l.books, good); err != nil {
			return err
		}
		l.books.Environments, l.envs, l.envsErr, l.envsRestored = found, nil, nil, true
	}
	if devices {
		found, err := decodeDevices(good.devices)
		if err != nil {
			return fmt.Errorf("root's copy of %s: %w", devicesFile, err)
		}
		if err := s.clear(dir, devicesFile, l.devicesErr, &l.books, good); err != nil {
			return err
		}
		l.books.Devices, l.devices, l.devicesErr = found, nil, nil
	}
	return nil
}

// missing is the error of a genv that may not restore.
func missing(dir *folder, envs bool) error {
	name := devicesFile
	if envs {
		name = envsFile
	}
	return fmt.Errorf("%w: %s is missing, although root has a copy of it: root's genv restores it when it next looks; ask root to run `genv envs`",
		ErrLost, dir.join(name))
}

// lost says whether a file is to be restored, or is missing.
func lost(v *view, data []byte, err error) bool {
	if err == nil {
		return data == nil
	}
	return v.writable && (errors.Is(err, ErrCorrupt) || errors.Is(err, ErrUnsafe))
}

// clear moves an unsafe file out of the way of one that is restored, and adds a
// warning about what was there.
func (s *Store) clear(dir *folder, name string, cause error, b *Files, good *lastGood) error {
	what := "missing"
	var st unix.Stat_t
	if err := unix.Fstatat(dir.fd, name, &st, unix.AT_SYMLINK_NOFOLLOW); err == nil {
		what = fmt.Sprintf("bad (%v); it belongs to %s and was last changed at %s",
			reason(cause), s.user(snapshot.UID(st.Uid)), time.Unix(st.Mtim.Unix()).In(s.now().Location()).Format(time.DateTime))
	}
	if errors.Is(cause, ErrUnsafe) {
		if err := dir.aside(name, s.now()); err != nil {
			return err
		}
		s.step("aside " + name)
	}
	b.Warnings = append(b.Warnings, fmt.Sprintf("%s was %s: restored from root's copy of %s",
		dir.join(name), what, good.Taken.In(s.now().Location()).Format(time.DateTime)))
	return nil
}

// reason is what is wrong with a file, without what is to be done about it.
func reason(err error) error {
	var corrupt *CorruptError
	if errors.As(err, &corrupt) {
		return fmt.Errorf("%w: %w", ErrCorrupt, corrupt.Cause)
	}
	return ErrUnsafe
}

// user is a uid with its name from /etc/passwd. A directory service is not asked,
// since the lock is held.
func (s *Store) user(uid snapshot.UID) string {
	if name := nameIn("/etc/passwd", strconv.FormatUint(uint64(uid), 10)); name != "" {
		return fmt.Sprintf("uid %d (%s)", uid, name)
	}
	return fmt.Sprintf("uid %d", uid)
}

// aside moves what is in a state file's place out of the way, without opening
// or following it.
func (d *folder) aside(name string, now time.Time) error {
	prefix := name + ".corrupt-"
	if n, err := d.count(prefix); err == nil && n >= maxCopies && unix.Unlinkat(d.fd, name, 0) == nil {
		return nil
	}
	to := prefix + now.Format("20060102-150405.000000000")
	if err := ignore(unix.Renameat(d.fd, name, d.fd, to), unix.ENOENT); err != nil {
		return &fs.PathError{Op: "move aside", Path: d.join(name), Err: err}
	}
	return nil
}

// maxFound bounds how many environments of a user are found again, since any user
// can start processes with any id.
const maxFound = 64

// find registers environments that began after the copy was taken, by the
// processes that carry their ids: those that started since root last saw the state
// files whole. An id that several users claim is that of the user who has the
// process that it is named after. If there is none it is registered for nobody, and
// the judge spares all these processes for a while: see Restoration.
func (b *Files) find(processes []RunningProcess, since snapshot.StartTime, now snapshot.Date) {
	processes = byAge(processes)
	claimants, found := map[snapshot.EnvID][]RunningProcess{}, map[snapshot.UID]int{}
	registered, namesakes := b.byID(), map[snapshot.EnvID]snapshot.UID{}
	contested := 0
	for _, p := range processes {
		namesakes[snapshot.EnvID(strconv.Itoa(int(p.PID)))] = p.UID
		if p.Environ == EnvironRead && p.EID != "" && p.Start >= since && registered[p.EID] == nil {
			claimants[p.EID] = append(claimants[p.EID], p)
		}
	}
	for _, p := range processes {
		claimed := claimants[p.EID]
		if claimed == nil {
			continue
		}
		delete(claimants, p.EID) // each id once
		namesake, named := namesakes[p.EID]
		uid, ok := ownerOf(claimed, namesake, named)
		if !ok {
			if contested++; contested <= maxFound {
				b.Warnings = append(b.Warnings, fmt.Sprintf("environment %s, which began after the copy, is claimed by processes of several users: it was registered for nobody", snapshot.Shown(string(p.EID))))
			}
			continue
		}
		if found[uid]++; found[uid] > maxFound {
			continue
		}
		var pids []snapshot.PID
		for _, c := range claimed {
			if c.UID == uid && len(pids) < maxSuccessors {
				pids = append(pids, c.PID)
			}
		}
		b.Environments = append(b.Environments, snapshot.Environment{EID: p.EID, UID: uid, Creation: now, PIDs: pids})
		b.Warnings = append(b.Warnings, fmt.Sprintf("environment %s of uid %d, which began after the copy, was found again by its processes; its configuration is lost", snapshot.Shown(string(p.EID)), uid))
	}
}

// ownerOf decides which user the environment belongs to that these processes
// claim, the oldest first. namesake has the process that it is named after, if
// there is one. ok is unset where that is not to be told.
func ownerOf(claimed []RunningProcess, namesake snapshot.UID, named bool) (owner snapshot.UID, ok bool) {
	ok = true
	for _, c := range claimed {
		switch {
		case named && c.UID == namesake:
			return namesake, true
		case c.UID == 0 || c.UID == owner: // root's processes may be in anyone's environment, by sudo
		case owner == 0:
			owner = c.UID
		default:
			ok = false
		}
	}
	return owner, ok
}

// repairModes is for root: a state file of another user that not everybody may
// read and write is written again, by root. Its content has been checked by
// then, so that no other file of a user becomes public.
func (s *Store) repairModes(dir *folder, v *view, l *loaded) {
	for _, name := range []string{envsFile, devicesFile} {
		var st unix.Stat_t
		if !v.writable || unix.Fstatat(dir.fd, name, &st, unix.AT_SYMLINK_NOFOLLOW) != nil || !narrowed(&st) {
			continue
		}
		l.books.Warnings = append(l.books.Warnings, fmt.Sprintf("%s of %s had mode %04o, by which others cannot use it: repaired",
			dir.join(name), s.user(snapshot.UID(st.Uid)), st.Mode&0o7777))
		if name == envsFile { // what was not read is written
			l.envs = nil
		} else {
			l.devices = nil
		}
	}
}

// narrowed says that a user took away other users' access to a file. If root did,
// it is left as it is.
func narrowed(st *unix.Stat_t) bool {
	return st.Mode&sharedMode != sharedMode && st.Uid != uint32(os.Geteuid()) && st.Uid != 0
}
