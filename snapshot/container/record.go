package container

import (
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/seed-3119e985/genv/snapshot"
)

// ErrInvalidRecord means that a record is not one that Write accepts.
var ErrInvalidRecord = errors.New("invalid record of a container")

// Proof is how it was proved for which user a container was started.
type Proof string

// The proofs. The zero value means that nothing is proved, and Record.UID is nil then.
const (
	// ProofToken: the user's shim had a one-time token from root's service, bound to the uid at
	// the other end of the socket.
	ProofToken Proof = "token"
	// ProofRootless: the container's user namespace belongs to the user. Earlier versions wrote
	// it; a container that still runs keeps its environment.
	ProofRootless Proof = "rootless"
)

// recordSchema is the version of the file's format.
const recordSchema = 1

// Record is what the hook knows about one container.
type Record struct {
	ID        string         `json:"id"`            // 64 hexadecimal digits, in lower case
	EID       snapshot.EnvID `json:"eid"`           // the environment that it was started in; empty for none
	UID       *snapshot.UID  `json:"uid,omitempty"` // the user for whom it was started; nil if that isn't proved
	Proof     Proof          `json:"proof"`
	Runtime   string         `json:"runtime"` // the engine, "docker" for example; empty if unknown
	StartedAt time.Time      `json:"started_at"`
	// PID and Start are the container's init, or what makes it: see Keeper. 0 for none.
	PID   snapshot.PID       `json:"pid,omitempty"`
	Start snapshot.StartTime `json:"start,omitempty"`
}

// recordFile is the content of a record's file.
type recordFile struct {
	Schema int `json:"schema"`
	Record
}

func (r *Record) check() error {
	switch {
	case !IsID(r.ID):
		return fmt.Errorf("%w: its id is not 64 hexadecimal digits", ErrInvalidRecord)
	case r.EID != "" && snapshot.Claim(string(r.EID)) != r.EID:
		return fmt.Errorf("%w: no environment has its eid", ErrInvalidRecord)
	case r.Proof != "" && r.Proof != ProofToken && r.Proof != ProofRootless:
		return fmt.Errorf("%w: an unknown proof", ErrInvalidRecord)
	case (r.Proof == "") != (r.UID == nil):
		return fmt.Errorf("%w: a uid and its proof come together", ErrInvalidRecord)
	case len(r.Runtime) > maxRuntime || strings.Trim(r.Runtime, "abcdefghijklmnopqrstuvwxyz0123456789.-") != "":
		return fmt.Errorf("%w: its runtime is not the name of one", ErrInvalidRecord)
	case r.PID < 0 || (r.PID == 0) != (r.Start == 0):
		return fmt.Errorf("%w: a process and its start time come together", ErrInvalidRecord)
	case r.StartedAt.IsZero():
		return fmt.Errorf("%w: it has no time", ErrInvalidRecord)
	}
	return nil
}

// maxRuntime is the maximum length of a runtime's name.
const maxRuntime = 64

// IsID says whether a text can be the ID of a container of Docker, Podman, containerd or
// CRI-O: 64 hexadecimal digits in lower case. Only such a text becomes a file's name.
func IsID(id string) bool { return len(id) == 64 && strings.Trim(id, "0123456789abcdef") == "" }
