package proc

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"

	"github.com/seed-3119e985/genv/snapshot"
)

// CheckNamespace says whether the PIDs of this /proc are those of our own PID
// namespace: in a container that mounts its host's, they mean other processes.
func (fs FS) CheckNamespace() error {
	self, err := os.Readlink(filepath.Join(fs.root(), "self"))
	if err != nil {
		return err
	}
	if self != strconv.Itoa(os.Getpid()) {
		return fmt.Errorf("%s is of another PID namespace: mount proc again", fs.root())
	}
	return nil
}

// Namespace names the PID namespace that a process is in (pid_namespaces(7)).
func (fs FS) Namespace(pid snapshot.PID) (string, error) {
	return os.Readlink(filepath.Join(fs.root(), strconv.Itoa(int(pid)), "ns/pid"))
}
