package proc

import (
	"bytes"
	"errors"
	"fmt"
	"strconv"

	"github.com/seed-3119e985/genv/snapshot"
)

// Status is what /proc/PID/status says of a process.
type Status struct {
	// UID is who started the process: the real uid. A set-uid program changes its
	// effective uid, and the owner of /proc/PID follows that one (or is root when
	// the process is not dumpable), but the real uid stays that of the person.
	UID snapshot.UID
	// InnerNamespace says that it is in a PID namespace inside that of this
	// /proc, which is PID 1's. Everyone may read that here, unlike PID 1's
	// /proc/1/ns/pid.
	InnerNamespace bool
}

// Status reads /proc/PID/status.
func (h *Handle) Status() (Status, error) {
	data, err := h.read("status", smallLimit)
	if err != nil {
		return Status{}, err
	}
	uid, err := ParseUID(data)
	if err != nil {
		return Status{}, fmt.Errorf("%w: PID %d: %w", ErrUnreadable, h.PID, err)
	}
	return Status{UID: uid, InnerNamespace: inInnerNamespace(data)}, nil
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

// UID is the real uid of the process: see Status.
func (h *Handle) UID() (snapshot.UID, error) {
	status, err := h.Status()
	return status.UID, err
}

// UID is the real uid of one process.
func (fs FS) UID(pid snapshot.PID) (snapshot.UID, error) {
	return with(fs, pid, (*Handle).UID)
}

var errStatus = errors.New("no uid in /proc/PID/status")

// ParseUID finds the real uid in /proc/PID/status. The first line holds the
// command's name, in which the kernel escapes newlines, so that no process can
// write a line of its own.
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
