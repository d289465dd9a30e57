// Package holder finds the process that holds a lock of flock(2) on a file, as far as
// /proc/locks shows it, and describes it for people.
//
//	err = fmt.Errorf("%s is held by %s", path, holder.Of("/proc", &st).Describe())
//
// It doesn't take locks: see packages disk and folder.
package holder
