package proc

import (
	"bytes"
	"errors"
	"fmt"
	"strconv"

	"github.com/seed-3119e985/genv/snapshot"
)

// Credentials are the parts of /proc/PID/status that are used here.
type Credentials struct {
	// UID is the real uid, that of the user who started the process. A set-uid
	// program changes the effective uid, and with it the owner of /proc/PID, who is
	// root if the process is not dumpable, but not the real uid.
	UID snapshot.UID
	// InnerNamespace says that the process is in a PID namespace inside that of this
	// /proc. Every user may read it, unlike /proc/PID/ns/pid.
	InnerNamespace bool
}

// Credentials reads /proc/PID/status.
func (h *Handle) Credentials() (Credentials, error) {
	data, err := h.read("status", smallLimit)
	if err != nil {
		return Credentials{}, err
	}
	uid, err := ParseUID(data)
	if err != nil {
		return Credentials{}, fmt.Errorf("%w: PID %d: %w", ErrUnreadable, h.PID, err)
	}
	return Credentials{UID: uid, InnerNamespace: inInnerNamespace(data)}, nil
}

// inInnerNamespace says whether a process has PIDs in several namespaces.
func inInnerNamespace(status []byte) bool {
	for line := range bytes.Lines(status) {
		if pids, ok := bytes.CutPrefix(line, []byte("NSpid:")); ok {
			return len(bytes.Fields(pids)) > 1
		}
	}
	return false // a kernel before 4.1
}

// UID is the real uid of the process.
func (h *Handle) UID() (snapshot.UID, error) {
	c, err := h.Credentials()
	return c.UID, err
}

// UID is the real uid of one process.
func (fs FS) UID(pid snapshot.PID) (snapshot.UID, error) { return with(fs, pid, (*Handle).UID) }

var errStatus = errors.New("no uid in /proc/PID/status")

// ParseUID finds the real uid in /proc/PID/status. The first line contains the command's
// name, in which the kernel escapes newlines, so that no process can add a line.
func ParseUID(data []byte) (snapshot.UID, error) {
	for line := range bytes.Lines(data) {
		rest, ok := bytes.CutPrefix(line, []byte("Uid:"))
		if !ok {
			continue
		}
		fields := bytes.Fields(rest)
		if len(fields) != 4 { // real, effective, saved, file system
			return 0, errStatus
		}
		uid, err := strconv.ParseUint(string(fields[0]), 10, 32)
		if err != nil {
			return 0, fmt.Errorf("%w: %w", errStatus, err)
		}
		return snapshot.UID(uid), nil
	}
	return 0, errStatus
}
