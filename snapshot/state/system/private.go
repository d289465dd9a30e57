package system

import (
	"cmp"
	"os"
	"path/filepath"
	"strings"
)

// IsPrivate says whether what is mounted at a path is another folder of its file system, as
// PrivateTmp= of systemd and pam_namespace(8) have it for some processes alone. That a subvolume is
// mounted at its own place is usual.
func IsPrivate(procRoot, path string) bool {
	data, err := os.ReadFile(filepath.Join(cmp.Or(procRoot, RealProc), "self/mountinfo"))
	return err == nil && isPrivate(string(data), path)
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
