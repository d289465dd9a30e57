package container

import (
	"path/filepath"

	"golang.org/x/sys/unix"

	"github.com/seed-3119e985/genv/snapshot/proc"
)

// Stamp is the state of a file or folder that an engine writes whenever it changes what it knows about
// a container, such as its name. The zero Stamp is that of no file.
type Stamp struct {
	path                    string
	inode                   uint64
	size, written, replaced int64
}

// Changed says whether an engine may have changed what it knows about a container since a
// look. It takes microseconds.
func (Engines) Changed(since Stamp) bool { return since.path == "" || stampOf(since.path) != since }

// stampOf is the Stamp of a file, which is the zero one if that can't be looked at.
func stampOf(path string) Stamp {
	var st unix.Stat_t
	if err := unix.Stat(path, &st); err != nil {
		return Stamp{}
	}
	return Stamp{path, st.Ino, st.Size, st.Mtim.Nano(), st.Ctim.Nano()}
}

// stamp is the Stamp of a container, taken before its engine is asked, so that no change is
// missed. It has no influence on what is believed. Containerd's is taken with its record.
func (e Engines) stamp(place proc.Place) Stamp {
	var paths []string
	switch place.Runtime {
	case proc.Docker, "":
		path, err := e.dockerFile(place.ID)
		if err != nil {
			return Stamp{}
		}
		paths = []string{path}
	case proc.Podman, proc.CRIO:
		// The folder changes with each of the lists in it, which are replaced.
		paths = []string{filepath.Join(storage, "overlay"+containersOf), filepath.Join(storage, "vfs"+containersOf)}
	}
	for _, path := range paths {
		if s := stampOf(e.path(path)); s.path != "" {
			return s
		}
	}
	return Stamp{}
}
