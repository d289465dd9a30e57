package container

import (
	"encoding/json"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/seed-3119e985/genv/snapshot"
	"github.com/seed-3119e985/genv/snapshot/proc"
	"github.com/seed-3119e985/genv/snapshot/state/folder"
)

// maxRecord bounds a file that is read, in bytes.
const maxRecord = 4 << 20

// dockerRecord reads what Docker keeps about a container in its data folder.
func (e Engines) dockerRecord(id string) (Details, error) {
	path, err := e.dockerFile(id)
	if err != nil {
		return Details{}, err
	}
	data, err := e.read(path)
	if err != nil {
		return Details{}, err
	}
	return ParseDocker(data, id)
}

// dockerFile is the file of a container in Docker's data folder, which is /var/lib/docker
// unless daemon.json names another one.
func (e Engines) dockerFile(id string) (string, error) {
	root := "/var/lib/docker"
	var daemon struct {
		DataRoot string `json:"data-root"`
	}
	data, err := e.read("/etc/docker/daemon.json")
	if err == nil {
		_ = json.Unmarshal(data, &daemon) // dockerd doesn't start with an invalid one
	} else if !errors.Is(err, fs.ErrNotExist) {
		return "", err
	}
	if filepath.IsAbs(daemon.DataRoot) {
		root = daemon.DataRoot
	}
	return filepath.Join(root, "containers", id, "config.v2.json"), nil
}

// The folders in which Podman and CRI-O have a folder for each storage driver.
const (
	storage      = "/var/lib/containers/storage"
	storageState = "/run/containers/storage"
)

// containersOf ends the name of the folder of a storage driver in which containers are.
const containersOf = "-containers"

// storageLists are the lists of the containers in such a folder. Those of `podman run --rm`
// are in the second one.
var storageLists = []string{"containers.json", "volatile-containers.json"}

// storageRecord reads what Podman or CRI-O keeps of a container.
func (e Engines) storageRecord(id string) (Details, error) {
	data, at, err := e.readOnly(storage, containersOf, id, "userdata/config.json")
	if err != nil {
		return Details{}, err
	}
	details, err := ParseBundle(data)
	if err != nil {
		return Details{}, err
	}
	for _, list := range storageLists {
		if details.Name != "" {
			break
		}
		if data, err := e.read(filepath.Join(filepath.Dir(at), list)); err == nil {
			details.Name, details.Image, _ = ParseStorage(data, id) // empty if it isn't in this one
		}
	}
	if _, at, err := e.readOnly(storageState, containersOf, id, "userdata/pidfile"); err == nil {
		details.Init = e.readPID(filepath.Join(at, "userdata/pidfile"))
	}
	return details, nil
}

// readOnly reads the only file with a name in a container's folder below the folders of
// parent with that suffix, and returns the container's folder too. It is fs.ErrNotExist if
// there is none.
func (e Engines) readOnly(parent, suffix, id, name string) (data []byte, at string, err error) {
	folders, err := e.foldersIn(parent, suffix)
	if err != nil {
		return nil, "", err
	}
	for _, at := range folders {
		at = filepath.Join(at, id)
		data, err := e.read(filepath.Join(at, name))
		if !errors.Is(err, fs.ErrNotExist) {
			return data, at, err
		}
	}
	return nil, "", fs.ErrNotExist
}

// foldersIn are the paths of what is in a folder, with a suffix.
func (e Engines) foldersIn(parent, suffix string) (paths []string, err error) {
	at, err := folder.TrustedPath(e.Root, parent)
	if err != nil {
		return nil, err
	}
	entries, err := os.ReadDir(at)
	for _, entry := range entries {
		if strings.HasSuffix(entry.Name(), suffix) {
			paths = append(paths, filepath.Join(parent, entry.Name()))
		}
	}
	return paths, err
}

// read reads a file that only the engine, as root, can have written.
func (e Engines) read(path string) ([]byte, error) {
	return folder.ReadTrustedPath(e.Root, path, maxRecord)
}

// readPID is the PID in a file; 0 if it has none.
func (e Engines) readPID(path string) snapshot.PID {
	data, err := e.read(path)
	if err != nil {
		return 0
	}
	pid, err := strconv.ParseInt(strings.TrimSpace(string(data)), 10, 32)
	if err != nil || pid <= 0 {
		return 0
	}
	return snapshot.PID(pid)
}

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
