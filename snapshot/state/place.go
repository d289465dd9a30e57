package state

import (
	"fmt"

	"golang.org/x/sys/unix"
)

// FolderID identifies the state folder on this machine by its device and inode,
// as in "8:1/131", whatever path leads to it.
func (s *Store) FolderID() (string, error) {
	dir, err := openFolder(s.dir)
	if err != nil {
		return "", err
	}
	defer dir.close()
	var st unix.Stat_t
	if err := unix.Fstat(dir.fd, &st); err != nil {
		return "", fmt.Errorf("stat %s: %w", dir.path, err)
	}
	return fmt.Sprintf("%d:%d/%d", unix.Major(st.Dev), unix.Minor(st.Dev), st.Ino), nil
}
