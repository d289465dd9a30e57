package disk

import "golang.org/x/sys/unix"

// FindHolder finds the holder of a lock in the text of /proc/locks.
func FindHolder(locks string, dev, ino uint64) int {
	return int(findHolder(locks, &unix.Stat_t{Dev: dev, Ino: ino}))
}
