package system

import (
	"fmt"
	"os"
	"strconv"
	"strings"

	"github.com/seed-3119e985/genv/snapshot/proc"
)

// Mountinfo is what is mounted where this process is, by a /proc; empty if it is unknown.
func Mountinfo(procRoot string) string {
	mountinfo, _ := proc.FS{Root: procRoot}.Mounts()
	return mountinfo
}

// IsPrivate says whether another folder of its file system is mounted at a path, as by PrivateTmp= and
// pam_namespace(8).
func IsPrivate(mountinfo, path string) (private bool) {
	for m := range proc.ParseMounts(mountinfo, " "+path+" ") {
		if m.Point == path { // the last one covers the others
			private = m.Root != "/" && !strings.HasSuffix(m.Root, strings.TrimPrefix(path, "/"))
		}
	}
	return private
}

// IsOwn says whether a folder is that of the file system at "/", also if it is mounted there once more, as systemd
// does.
func IsOwn(mountinfo, path string) bool {
	for m := range proc.ParseMounts(mountinfo, " ") {
		if m.Point == escaped.Replace(path) {
			return false // as engines mount a folder of the host
		}
	}
	whole, known := treeAt(mountinfo, "/")
	here, alsoKnown := treeAt(mountinfo, escaped.Replace(path))
	return known && alsoKnown && whole == here
}

// treeAt is the device of the file system of a path, and its folder that has all below it at these paths. It isn't
// known for what is mounted at another path than its own.
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

// UsersMount describes a file system that a user has mounted at a path or below it; empty for none. It doesn't touch
// it.
func UsersMount(mountinfo, path string) string {
	path = escaped.Replace(path)
	for m := range proc.ParseMounts(mountinfo, path) {
		if m.Point != path && !strings.HasPrefix(m.Point, path+"/") {
			continue
		}
		for option := range strings.SplitSeq(m.Options, ",") {
			name, value, _ := strings.Cut(option, "=")
			uid, err := strconv.ParseUint(value, 10, 32)
			// FUSE; tmpfs and others
			if err == nil && (name == "user_id" || name == "uid") && uid != 0 && uid != uint64(os.Geteuid()) {
				return fmt.Sprintf("a %s file system of uid %d is mounted at %s", m.Kind, uid, m.Point)
			}
		}
	}
	return ""
}
