package system

import (
	"fmt"
	"os"
	"strconv"
	"strings"

	"github.com/seed-3119e985/genv/snapshot/proc"
)

// IsPrivate says whether what is mounted at a path is another folder of its file system, as
// PrivateTmp= of systemd and pam_namespace(8) have it for some processes alone. That a subvolume is
// mounted at its own place is usual.
func IsPrivate(procRoot, path string) bool {
	mountinfo, err := proc.FS{Root: procRoot}.Mounts()
	return err == nil && isPrivate(mountinfo, path)
}

func isPrivate(mountinfo, path string) (private bool) {
	for m := range proc.ParseMounts(mountinfo, " "+path+" ") {
		if m.Point == path { // the last one covers the others
			private = m.Root != "/" && !strings.HasSuffix(m.Root, strings.TrimPrefix(path, "/"))
		}
	}
	return private
}

// UsersMount describes a file system that another user than root and the caller has mounted at a
// path or below it, and where; it is empty for none. It doesn't touch the file system, which may
// never answer.
func UsersMount(procRoot, path string) string {
	mountinfo, _ := proc.FS{Root: procRoot}.Mounts() // unknown is none
	return usersMount(mountinfo, path)
}

// escaped is how mountinfo writes paths.
var escaped = strings.NewReplacer(`\`, `\134`, " ", `\040`, "\t", `\011`, "\n", `\012`)

func usersMount(mountinfo, path string) string {
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
