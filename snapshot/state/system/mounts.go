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
	for line := range strings.Lines(mountinfo) {
		// 36 35 98:0 /part /point options… - type source options: see proc_pid_mountinfo(5)
		if fields := strings.Fields(line); len(fields) > 6 && fields[4] == path { // the last one covers the others
			private = fields[3] != "/" && !strings.HasSuffix(fields[3], strings.TrimPrefix(path, "/"))
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
	for line := range strings.Lines(mountinfo) {
		if !strings.Contains(line, path) { // most lines are of others, and this is fast
			continue
		}
		mount, kind, _ := strings.Cut(line, " - ")
		at, source := strings.Fields(mount), strings.Fields(kind)
		if len(at) < 5 || len(source) < 3 || at[4] != path && !strings.HasPrefix(at[4], path+"/") {
			continue
		}
		for option := range strings.SplitSeq(source[2], ",") {
			name, value, _ := strings.Cut(option, "=")
			uid, err := strconv.ParseUint(value, 10, 32)
			if err == nil && (name == "user_id" || name == "uid") && uid != 0 && uid != uint64(os.Geteuid()) { // FUSE; tmpfs and others
				return fmt.Sprintf("a %s file system of uid %d is mounted at %s", source[0], uid, at[4])
			}
		}
	}
	return ""
}
