package state

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strconv"
	"time"

	"golang.org/x/sys/unix"

	"github.com/seed-3119e985/genv/snapshot"
)

// restoredFile is root's note of the last time that it restored a state file.
const restoredFile = "restored.json"

// restored is its content.
type restored struct {
	BootID string             `json:"boot_id"`
	At     time.Time          `json:"at"`
	Taken  time.Time          `json:"copy_taken"`
	Uptime snapshot.StartTime `json:"copy_start_time"`
}

// restore replaces what was lost by the last good copy. A file that is missing,
// although the copy of this boot has it, is restored by every user's genv; one that
// is corrupt or unsafe only by root's. The warnings of the books say what was done.
// The content is only loaded here, and saved later; what is written is a note that
// a file was restored, and a bad file is moved aside if it is in the way.
func (s *Store) restore(dir *folder, v *view, good *lastGood, l *loaded) error {
	if good == nil {
		return nil
	}
	var envs, devices bool
	if good.envs != nil {
		envs = s.lost(v, l.envs, l.envsErr)
	}
	if good.devices != nil {
		devices = s.lost(v, l.devices, l.devicesErr)
	}
	if !envs && !devices {
		return nil
	}
	done := restored{BootID: good.BootID, At: s.now().UTC(), Taken: good.Taken, Uptime: good.Uptime}
	if v.writable { // before anything else: if we are killed later, spareAfterRestore of snapshot/local still applies
		if data, err := json.Marshal(done); err == nil {
			_ = v.root.put(restoredFile, data, 0o644)
		}
		s.step("noted")
	}
	if envs {
		found, err := snapshot.DecodeEnvironments(good.envs)
		if err != nil {
			return fmt.Errorf("root's copy of %s: %w", envsFile, err)
		}
		if err := s.clear(dir, envsFile, l.envsErr, &l.books, good); err != nil {
			return err
		}
		l.books.Environments, l.envs, l.envsErr, l.envsRestored = found, nil, nil, true
	}
	if devices {
		found, err := snapshot.DecodeDevices(good.devices)
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

// lost says whether a file is to be restored.
func (s *Store) lost(v *view, data []byte, err error) bool {
	if err == nil {
		return data == nil
	}
	return v.writable && (errors.Is(err, ErrCorrupt) || errors.Is(err, ErrUnsafe))
}

// clear moves an unsafe file out of the way of one that is restored, and adds a
// warning about what was there.
func (s *Store) clear(dir *folder, name string, cause error, b *Books, good *lastGood) error {
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

// afterRestore fills in when the files were last restored in this boot.
func (s *Store) afterRestore(v *view, b *Books) {
	if v.root == nil || !v.clean {
		return
	}
	data, err := v.root.readBounded(restoredFile, maxNote)
	var r restored
	if err != nil || json.Unmarshal(data, &r) != nil || r.BootID != s.machine.BootID() {
		return
	}
	b.RestoredAt, b.CopyTime, b.CopyStart = r.At, r.Taken, r.Uptime
}

// Bounds on what is found again, since any user can start processes with any id:
// how many environments of a user, and how long their ids may be, in bytes.
const (
	maxFound   = 64
	maxFoundID = 64
)

// find registers environments that began after the copy was taken, by the
// processes that carry their ids: those that started since then. An id that
// several users claim is that of the user who has the process that it is named
// after, or else of the one with the oldest process.
func (b *Books) find(processes []Running, since snapshot.StartTime, now snapshot.Date) {
	processes = byAge(processes)
	claimants, found := map[snapshot.EnvID][]Running{}, map[snapshot.UID]int{}
	registered, namesakes := b.byID(), map[snapshot.EnvID]snapshot.UID{}
	for _, p := range processes {
		namesakes[snapshot.EnvID(strconv.Itoa(int(p.PID)))] = p.UID
		if p.Environ == EnvironRead && p.EID != "" && len(p.EID) <= maxFoundID && p.Start >= since && registered[p.EID] == nil {
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
		uid := ownerOf(claimed, namesake, named)
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
// there is one.
func ownerOf(claimed []Running, namesake snapshot.UID, named bool) snapshot.UID {
	uid := claimed[0].UID
	for _, c := range claimed {
		if named && c.UID == namesake {
			return namesake
		}
		if uid == 0 && c.UID != 0 { // root's processes may be in anyone's environment, by sudo
			uid = c.UID
		}
	}
	return uid
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
