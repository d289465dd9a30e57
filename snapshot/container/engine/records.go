package engine

import (
	"encoding/json"
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/seed-3119e985/genv/snapshot"
)

// maxRecord bounds a file that is read, in bytes.
const maxRecord = 4 << 20

// dockerRecord reads what Docker keeps about a container in its data folder.
func (e Engines) dockerRecord(id string) (Details, error) {
	data, err := readFile(filepath.Join(e.dockerFolder(), "containers", id, "config.v2.json"))
	if err != nil {
		return Details{}, err
	}
	return ParseDocker(data, id)
}

// dockerFolder is Docker's data folder: /var/lib/docker unless daemon.json names another.
func (e Engines) dockerFolder() string {
	var daemon struct {
		DataRoot string `json:"data-root"`
	}
	if data, err := readFile(e.path("/etc/docker/daemon.json")); err == nil {
		_ = json.Unmarshal(data, &daemon) // dockerd doesn't start with an invalid one
	}
	if filepath.IsAbs(daemon.DataRoot) {
		return e.path(daemon.DataRoot)
	}
	return e.path("/var/lib/docker")
}

// The folders of the bundles, with * for a namespace or a storage driver.
const (
	containerdBundles = "/run/containerd/io.containerd.runtime.v2.task/*"
	k3sBundles        = "/run/k3s/containerd/io.containerd.runtime.v2.task/*"
	storageBundles    = "/var/lib/containers/storage/*-containers"
	storageState      = "/run/containers/storage/*-containers"
)

// bundleRecord reads the bundle that containerd keeps of a running container.
func (e Engines) bundleRecord(id string) (Details, error) {
	for _, folder := range []string{containerdBundles, k3sBundles} {
		data, at, err := e.readOnly(folder, id, "config.json")
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return Details{}, err
		}
		details, err := ParseBundle(data)
		details.Init = readPID(filepath.Join(at, "init.pid"))
		return details, err
	}
	return Details{}, fs.ErrNotExist
}

// storageRecord reads what Podman or CRI-O keeps of a container.
func (e Engines) storageRecord(id string) (Details, error) {
	data, _, err := e.readOnly(storageBundles, id, "userdata/config.json")
	if err != nil {
		return Details{}, err
	}
	details, err := ParseBundle(data)
	if err != nil {
		return Details{}, err
	}
	if list, _, err := e.readOnly(storageBundles, "", "containers.json"); err == nil {
		if name, image, err := ParseStorage(list, id); err == nil && details.Name == "" {
			details.Name, details.Image = name, image
		}
	}
	if _, at, err := e.readOnly(storageState, id, "userdata/pidfile"); err == nil {
		details.Init = readPID(filepath.Join(at, "userdata/pidfile"))
	}
	return details, nil
}

// readOnly reads the only file with a name below folders that a pattern matches, and
// returns the folder of the id too. It is fs.ErrNotExist if there is none.
func (e Engines) readOnly(pattern, id, name string) (data []byte, folder string, err error) {
	found, err := filepath.Glob(e.path(pattern))
	if err != nil {
		return nil, "", err
	}
	for _, parent := range found {
		folder = filepath.Join(parent, id)
		data, err = readFile(filepath.Join(folder, name))
		if !errors.Is(err, fs.ErrNotExist) {
			return data, folder, err
		}
	}
	return nil, "", fs.ErrNotExist
}

func readFile(path string) ([]byte, error) {
	file, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	data, err := io.ReadAll(io.LimitReader(file, maxRecord+1))
	if err == nil && len(data) > maxRecord {
		err = errors.New(path + " is too long")
	}
	return data, err
}

// readPID is the PID in a file; 0 if it has none.
func readPID(path string) snapshot.PID {
	data, err := readFile(path)
	if err != nil {
		return 0
	}
	pid, err := strconv.ParseInt(strings.TrimSpace(string(data)), 10, 32)
	if err != nil || pid <= 0 {
		return 0
	}
	return snapshot.PID(pid)
}
