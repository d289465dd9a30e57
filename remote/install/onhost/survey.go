package onhost

import (
	"cmp"
	"context"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/seed-3119e985/genv/snapshot/state/folder"
	"github.com/seed-3119e985/genv/snapshot/text"
)

// Survey is what root sees on a host, for Decide.
type Survey struct {
	Found       string  // the genv that sudo finds; empty: none
	Sum         string  // of the file at the path; empty: none
	Version     string  // reported to the login; empty if missing or broken
	Link        string  // target, if the path is a symbolic link
	Other       bool    // the path is neither a file nor a link
	Unsafe      *Folder // on the way to the path; nil: none
	Package     string  // owner of the file Packaged, at the path or found
	Packaged    string
	NoVisudo    bool
	AccountUID  string   // of the account for sudoers; empty if missing
	HasKey      bool     // the account has the controller's key
	SSHRefuses  []string // lists of sshd_config that refuse the account, such as AllowUsers
	SudoPath    string   // where sudo looks for programs
	Shims       bool     // the shims are in place
	ShimsUnsafe *Folder  // on the way there
	Rules       Rules
	Earlier     Rules // of an earlier version
	RulesFolder bool  // the folder of sudoers files exists
	RulesUnsafe *Folder
	Lacks       []string // missing extras, in words

	NotNew  string // why root doesn't own the state by default
	Owned   bool   // root owns the state
	Systemd bool
	Unit    bool // root's service has a unit
	Stale   bool // the unit or the running program differs
}

func (s *Survey) outcome() Outcome {
	o := Outcome{Result: Unchanged}
	if s.Sum != "" {
		o.Before = &Version{Version: s.Version, Sum: s.Sum}
	}
	return o
}

// Rules are a sudoers file.
type Rules struct {
	Sum     string // empty if missing
	Content string
	Link    bool // a symbolic link
}

// Folder is a folder that users other than root may change.
type Folder struct {
	Path      string
	UID, Mode uint32
}

func (f *Folder) why() string {
	return fmt.Sprintf("others than root may change what is in %s (uid %d, mode %o)", f.Path, f.UID, f.Mode)
}

// unsafe returns the first folder from dir up to / that others than root may change, or nil.
func (h *Host) unsafe(dir string) *Folder {
	for ; ; dir = path.Dir(dir) {
		var st unix.Stat_t
		err := folder.Ignore(unix.Stat(h.at(dir), &st), unix.ENOENT)
		if err != nil || st.Ino != 0 && (int(st.Uid) != os.Geteuid() || st.Mode&0o022 != 0) {
			return &Folder{dir, st.Uid, st.Mode & 0o7777}
		}
		if dir == "/" {
			return nil
		}
	}
}

func (i *installation) look(ctx context.Context) *Survey {
	s := &Survey{Version: text.Cut(text.OneLine(i.Version), 80), NotNew: i.NotNew()}
	s.Found = i.foundBySudo()
	i.lookAtPlace(ctx, s)
	s.NoVisudo = i.find("visudo", i.Getenv("PATH")+folders) == ""
	s.RulesFolder, s.RulesUnsafe = i.isFolder(SudoersFolder), i.unsafe(SudoersFolder)
	s.Rules, s.Earlier = i.rules(rulesFile), i.rules(earlierFile)
	s.SudoPath = i.sudoPath(ctx)
	i.lookAtAccount(ctx, s)
	_, err := os.Stat(i.at("/var/lib/genv/host/owner.json"))
	s.Owned, s.Systemd = err == nil, i.isFolder("/run/systemd/system")
	for _, p := range i.units() {
		if sum := fileSum(i.at(p.path)); sum == "?" { // a link to /dev/null
			s.NotNew = cmp.Or(s.NotNew, path.Base(p.path)+" is masked")
		} else {
			_, restart := i.outdated(ctx, path.Base(p.path))
			s.Unit, s.Stale = s.Unit || sum != "", s.Stale || restart || sum != Checksum(p.content)
		}
	}
	for _, p := range i.extras(ctx, false) {
		if p.lacks && !slices.Contains(s.Lacks, p.what) {
			s.Lacks = append(s.Lacks, p.what)
		}
	}
	return s
}

// foundBySudo is the genv that sudo finds. The link in /usr/bin stands for its target.
func (i *installation) foundBySudo() string {
	found := i.find("genv", i.Getenv("PATH"))
	if target, _ := os.Readlink(i.at(found)); target == i.Path {
		return i.Path
	}
	return found
}

func (i *installation) lookAtPlace(ctx context.Context, s *Survey) {
	switch info, err := os.Lstat(i.at(i.Path)); {
	case err != nil:
	case info.Mode()&fs.ModeSymlink != 0:
		s.Link, _ = os.Readlink(i.at(i.Path))
	case info.Mode().IsRegular():
		if s.Sum = fileSum(i.at(i.Path)); s.Sum == i.Sum { // maybe replaced since the login
			said, _ := i.run(ctx, i.at(i.Path), "version") // no answer: unknown
			s.Version, _, _ = strings.Cut(said, "\n")
		}
	default:
		s.Other = true
	}
	s.Unsafe, s.ShimsUnsafe, s.Shims = i.unsafe(path.Dir(i.Path)), i.unsafe(path.Dir(i.shims()[0].path)), true
	for _, file := range []string{s.Found, i.Path} {
		if name := i.packageOf(ctx, file); name != "" {
			s.Packaged, s.Package = file, name
		}
	}
	for _, shim := range i.shims() {
		target, _ := os.Readlink(i.at(shim.path))
		s.Shims = s.Shims && target == shimTarget
	}
}

func (h *Host) isFolder(dir string) bool {
	info, err := os.Stat(h.at(dir))
	return err == nil && info.IsDir()
}

// packageOf is the dpkg or rpm package of a file, also behind a link, or "".
func (h *Host) packageOf(ctx context.Context, file string) string {
	resolved, err := filepath.EvalSymlinks(h.at(file))
	if file == "" || err != nil {
		return ""
	}
	for _, file := range []string{file, resolved} {
		if out, err := h.run(ctx, "dpkg", "-S", file); err == nil {
			name, _, _ := strings.Cut(out, ":")
			return text.OneLine(name)
		}
		if out, err := h.run(ctx, "rpm", "-qf", "--qf", "%{NAME}", file); err == nil {
			return text.OneLine(out)
		}
	}
	return ""
}

func (h *Host) rules(file string) Rules {
	const limit = 64 << 10 // bytes
	_, err := os.Readlink(h.at(file))
	data, readErr := folder.ReadRegular(h.at(file), limit)
	if readErr != nil && !os.IsNotExist(readErr) {
		data = []byte("?") // unknown isn't missing
	}
	return Rules{fileSum(h.at(file)), string(data), err == nil}
}

func (i *installation) sudoPath(ctx context.Context) string {
	out, err := i.run(ctx, "sudo", "-n", "printenv", "PATH")
	if err != nil && i.Getenv("SUDO_USER") != "" {
		out = i.Getenv("PATH")
	}
	return strings.TrimSpace(out)
}

// NotNew says why root doesn't own the state from the start on this host; empty if it does.
func (h *Host) NotNew() string {
	switch {
	case !h.exists("/proc/driver/nvidia/version"):
		return "it has no driver of NVIDIA's"
	case !h.isFolder("/run/systemd/system"):
		return "it doesn't run systemd"
	case h.exists("/var/tmp/genv"):
		return "it has a state folder, /var/tmp/genv"
	}
	return h.genv143()
}

// genv143 finds genv 1.4.3, a Python program, in PATH, Python's packages, or as a process. It reads only what processes
// can't make slow.
func (h *Host) genv143() string {
	for _, dir := range filepath.SplitList(h.Getenv("PATH") + folders) {
		path := filepath.Join(dir, "genv")
		data, _ := folder.ReadRegular(h.at(path), 16<<20) // also one with embedded modules
		first, _, _ := strings.Cut(string(data), "\n")
		if strings.HasPrefix(first, "#!") && strings.Contains(first, "python") {
			return "it has genv 1.4.3, " + path
		}
	}
	for _, lib := range []string{"/usr/lib*", "/usr/local/lib*"} {
		packages, _ := filepath.Glob(h.at(lib + "/python3*/*-packages/genv")) // a valid pattern
		if len(packages) > 0 {
			return "it has genv 1.4.3, " + packages[0]
		}
	}
	processes, _ := filepath.Glob(h.at("/proc/[0-9]*"))
	for _, process := range processes {
		name, _ := os.ReadFile(process + "/comm") // it may have ended
		exe, _ := os.Readlink(process + "/exe")
		if string(name) == "genv\n" && strings.HasPrefix(path.Base(exe), "python") {
			return "genv 1.4.3 runs there, as process " + path.Base(process)
		}
	}
	return ""
}
