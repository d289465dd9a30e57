// Package system answers what the state files don't say: which processes and Jupyter kernels live and whose they are,
// this program's namespaces and boot, and users' names. It changes nothing.
//
//	s := system.New(proc.FS{}, nss.Passwd{})
//	gone := s.Process(pid).Liveness == system.Gone
package system

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/seed-3119e985/genv/snapshot"
	"github.com/seed-3119e985/genv/snapshot/nss"
	"github.com/seed-3119e985/genv/snapshot/proc"
)

// Liveness says whether something lives. Unknown never means Gone.
type Liveness int

const (
	Unknown Liveness = iota
	Alive
	Gone
)

// ProcessStatus is what a System knows about a PID.
type ProcessStatus struct {
	Liveness Liveness
	Start    snapshot.StartTime // 0 if unknown
	Owner    *snapshot.UID      // nil if unknown
}

// System answers a Store's questions about its machine.
type System interface {
	BootID() string                         // of the kernel; "" if unknown
	Process(pid snapshot.PID) ProcessStatus // a zombie is Gone
	Kernels(kernels []Kernel) map[Kernel]Liveness
	Namespaces() Namespaces     // of this process: how it sees PIDs and uids
	Uptime() snapshot.StartTime // start time of a process that starts now; 0 if unknown
	// Running lists processes of the wanted uids, except zombies and kernel threads.
	Running(wanted func(snapshot.UID) bool) (list []RunningProcess, complete bool)
}

const RealProc = "/proc" // where the kernel's own is mounted

// New returns the System of a /proc file system.
func New(fs proc.FS, accounts nss.Passwd) System {
	fs.Root = cmp.Or(fs.Root, RealProc)
	return procfs{fs: fs, accounts: accounts, kernelsPending: &sync.Map{}}
}

type procfs struct {
	fs       proc.FS
	accounts nss.Passwd

	kernelsPending *sync.Map // users whose folders haven't answered yet
}

func (p procfs) BootID() string {
	id, _ := p.fs.BootID()
	return id
}

// Process reads /proc/PID. If that is hidden (hidepid), signal 0 shows whether it exists.
func (p procfs) Process(pid snapshot.PID) ProcessStatus {
	stat, err := p.fs.Stat(pid)
	switch {
	case errors.Is(err, proc.ErrGone):
		return ProcessStatus{Liveness: Gone}
	case err != nil:
		return ProcessStatus{Liveness: p.signal0(pid)}
	case stat.Gone():
		return ProcessStatus{Liveness: Gone}
	}
	now := ProcessStatus{Liveness: Alive, Start: stat.Start}
	if uid, err := p.fs.UID(pid); err == nil {
		now.Owner = &uid
	}
	return now
}

// signal0 asks the kernel: EPERM means that the process exists.
func (p procfs) signal0(pid snapshot.PID) Liveness {
	if p.fs.Root != RealProc {
		return Unknown
	}
	switch err := unix.Kill(int(pid), 0); {
	case errors.Is(err, unix.ESRCH):
		return Gone
	case err != nil && !errors.Is(err, unix.EPERM):
		return Unknown
	case isZombie(pid):
		return Gone
	}
	return Alive
}

func isZombie(pid snapshot.PID) bool {
	fd, err := unix.PidfdOpen(int(pid), 0)
	if err != nil {
		return errors.Is(err, unix.ESRCH)
	}
	defer unix.Close(fd)
	ended, err := proc.HasEnded(fd)
	return err == nil && ended
}

// showsAll: /proc hides nothing. With hidepid only root can read PID 1's command line.
func (p procfs) showsAll() bool {
	_, err := os.ReadFile(filepath.Join(p.fs.Root, "1/cmdline"))
	return err == nil
}

// Namespaces are the inodes of a process's PID and user namespace; 0 is unknown.
type Namespaces struct {
	PID  uint64 `json:"pid_namespace"`
	User uint64 `json:"user_namespace"`
}

// The initial namespaces' PROC_PID_INIT_INO and PROC_USER_INIT_INO (include/linux/proc_ns.h).
const (
	initialPID  = 0xEFFFFFFC
	initialUser = 0xEFFFFFFD
)

// Known is false if /proc doesn't show the namespaces.
func (n Namespaces) Known() bool { return n.PID != 0 && n.User != 0 }

// Initial says whether these are the machine's, not a container's.
func (n Namespaces) Initial() bool { return n.PID == initialPID && n.User == initialUser }

func (p procfs) Namespaces() Namespaces {
	return Namespaces{PID: p.namespace("pid"), User: p.namespace("user")}
}

func (p procfs) namespace(kind string) uint64 {
	var st unix.Stat_t
	if unix.Stat(filepath.Join(p.fs.Root, "self/ns", kind), &st) != nil {
		return 0
	}
	return st.Ino
}

// Now is in the machine's zone, whatever TZ says: the state files' dates are.
func Now() time.Time { return time.Now().In(zone()) }

var zone = sync.OnceValue(func() *time.Location {
	if _, set := os.LookupEnv("TZ"); !set {
		return time.Local
	}
	return zoneIn("/etc/localtime")
})

// zoneIn reads a tzfile(5), or returns UTC.
func zoneIn(path string) *time.Location {
	data, _ := os.ReadFile(path) // checked by the next call
	if zone, err := time.LoadLocationFromTZData("Local", data); err == nil {
		return zone
	}
	return time.UTC
}

// RunningProcess is a living process, with what determines its environment.
type RunningProcess struct {
	PID, Parent snapshot.PID
	Session     snapshot.PID // see proc.Stat
	Start       snapshot.StartTime
	UID         snapshot.UID // the account
	Name        string
	EID         snapshot.EnvID // claimed by the environ; empty: none
	Unread      error          // why the environ is unknown; nil if read
}

// IsLate says that the environ wasn't read in time. Another look may succeed.
func (p *RunningProcess) IsLate() bool {
	return errors.Is(p.Unread, proc.ErrStalled) || errors.Is(p.Unread, proc.ErrNotRead)
}

// IsUnknown says that the process may be in any environment, unlike one that just overwrote its environ.
func (p *RunningProcess) IsUnknown() bool {
	return p.IsLate() || errors.Is(p.Unread, fs.ErrPermission) || errors.Is(p.Unread, proc.ErrTooLarge)
}

func (p procfs) Uptime() snapshot.StartTime { return proc.StartTimeNow() }

func (p procfs) Running(wanted func(snapshot.UID) bool) (list []RunningProcess, complete bool) {
	pids, err := p.fs.PIDs()
	if err != nil {
		return nil, false
	}
	quotas := proc.Quotas{}
	complete = p.showsAll()
	for _, pid := range pids {
		r, err := p.running(pid, wanted, quotas)
		switch {
		case err == nil:
			list = append(list, r)
		case errors.Is(err, proc.ErrAccountUnknown): // it may be wanted
			complete = false
		}
	}
	return list, complete
}

var errUnwanted = errors.New("not a process that is asked for")

func (p procfs) running(pid snapshot.PID, wanted func(snapshot.UID) bool, quotas proc.Quotas) (RunningProcess, error) {
	process, err := p.fs.Open(pid)
	if err != nil {
		return RunningProcess{}, err
	}
	defer process.Close()
	r := RunningProcess{PID: pid}
	if r.UID, err = process.UID(); err != nil && !errors.Is(err, proc.ErrGone) {
		r.UID, err = p.fs.FolderOwner(pid) // all that hidepid=1 shows
	}
	switch {
	case err != nil:
		return r, err
	case !wanted(r.UID):
		return r, errUnwanted
	}
	stat, err := process.Stat()
	if errors.Is(err, proc.ErrGone) || (err == nil && (stat.Gone() || stat.IsKernelThread())) {
		return r, errUnwanted
	}
	r.Parent, r.Session, r.Start, r.Name = stat.PPID, stat.Session, stat.Start, stat.Name
	process.Quota = quotas.Of(proc.QuotaKey{UID: r.UID})
	value, _, err := process.Environ(snapshot.ClaimVariable)
	if errors.Is(err, proc.ErrGone) {
		return r, err
	}
	if r.Unread = err; err == nil {
		r.EID = snapshot.Claim(value)
	}
	return r, nil
}

const accountWithin = 2 * time.Second // to look up an account while others wait

// Username returns a uid's name, or "" if it has none or is unknown.
func Username(ctx context.Context, uid snapshot.UID) snapshot.Username {
	ctx, cancel := context.WithTimeout(ctx, accountWithin)
	defer cancel()
	account, _ := nss.Passwd{}.WithUID(ctx, uid)
	return account.Username()
}

// FirstUID is UID_MIN in login.defs(5): lower uids are system accounts.
var FirstUID = sync.OnceValue(func() snapshot.UID {
	data, _ := os.ReadFile("/etc/login.defs") // default if missing
	return firstUID(string(data))
})

func firstUID(loginDefs string) snapshot.UID {
	const usual = 1000
	for line := range strings.Lines(loginDefs) {
		if fields := strings.Fields(line); len(fields) == 2 && fields[0] == "UID_MIN" {
			if n, err := strconv.ParseUint(fields[1], 0, 32); err == nil && n > 0 {
				return snapshot.UID(n)
			}
		}
	}
	return usual
}

// DescribeUser adds the name in /etc/passwd. It asks no directory service, as the lock is held.
func DescribeUser(uid uint32) string {
	account, _ := nss.Passwd{}.Local(snapshot.UID(uid))
	if name := account.Username(); name != "" {
		return fmt.Sprintf("uid %d (%s)", uid, name)
	}
	return fmt.Sprintf("uid %d", uid)
}

// Mountinfo returns this process's mounts; empty if unknown.
func Mountinfo(procRoot string) string {
	mountinfo, _ := proc.FS{Root: procRoot}.Mounts()
	return mountinfo
}

// IsPrivate says whether another folder is mounted there, as by PrivateTmp= or pam_namespace(8).
func IsPrivate(mountinfo, path string) (private bool) {
	for m := range proc.ParseMounts(mountinfo, " "+path+" ") {
		if m.Point == path { // the last one covers the others
			private = m.Root != "/" && !strings.HasSuffix(m.Root, strings.TrimPrefix(path, "/"))
		}
	}
	return private
}

// IsOwn says whether a folder is on the root file system, even if mounted again, as by systemd.
func IsOwn(mountinfo, path string) bool {
	for m := range proc.ParseMounts(mountinfo, " ") {
		if m.Point == escaped.Replace(path) {
			return false // how engines mount a host's folder
		}
	}
	whole, known := treeAt(mountinfo, "/")
	here, alsoKnown := treeAt(mountinfo, escaped.Replace(path))
	return known && alsoKnown && whole == here
}

// treeAt is a path's device, and that device's folder that is "/" here; unknown if mounted at another path.
func treeAt(mountinfo, path string) (tree [2]string, known bool) {
	nearest := ""
	for m := range proc.ParseMounts(mountinfo, " ") {
		point := strings.TrimSuffix(m.Point, "/")
		if !strings.HasPrefix(path+"/", point+"/") || len(point) < len(nearest) {
			continue
		}
		nearest = point // the last one covers the others
		tree[0] = m.Device
		tree[1], known = strings.CutSuffix(strings.TrimSuffix(m.Root, "/"), point)
	}
	return tree, known
}

var escaped = strings.NewReplacer(`\`, `\134`, " ", `\040`, "\t", `\011`, "\n", `\012`)

// UsersMount describes a file system that a user mounted at or below a path, without touching it.
func UsersMount(mountinfo, path string) string {
	path = escaped.Replace(path)
	for m := range proc.ParseMounts(mountinfo, path) {
		if m.Point != path && !strings.HasPrefix(m.Point, path+"/") {
			continue
		}
		for option := range strings.SplitSeq(m.Options, ",") {
			name, value, _ := strings.Cut(option, "=")
			uid, err := strconv.ParseUint(value, 10, 32)
			// user_id is FUSE's; uid is used by tmpfs and others
			if err == nil && (name == "user_id" || name == "uid") && uid != 0 && uid != uint64(os.Geteuid()) {
				return fmt.Sprintf("a %s file system of uid %d is mounted at %s", m.Kind, uid, m.Point)
			}
		}
	}
	return ""
}
