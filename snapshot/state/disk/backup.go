package disk

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/seed-3119e985/genv/snapshot"
	"github.com/seed-3119e985/genv/snapshot/state"
)

// backupFile holds root's last good copy of both state files: a line of JSON, then
// the contents of the one, then of the other. They are in one file so that they are
// of the same moment.
const backupFile = "last-good"

// maxBackup bounds that file, in bytes: two state files and the line before them.
const maxBackup = 2*maxFileSize + 4096

// backup is the content of that file.
type backup struct {
	backupHeader
	contents state.Contents
}

type backupHeader struct {
	BootID string             `json:"boot_id"`
	Taken  time.Time          `json:"taken"`
	Uptime snapshot.StartTime `json:"taken_start_time"` // processes that start later have a higher start time
	// The lengths of the contents, -1 for no file.
	Envs    int `json:"envs_bytes"`
	Devices int `json:"devices_bytes"`
}

var errBackup = errors.New("not a copy of state files")

func (b *backup) encode() ([]byte, error) {
	b.Envs, b.Devices = length(b.contents[state.Envs]), length(b.contents[state.Devices])
	header, err := json.Marshal(b.backupHeader)
	if err != nil {
		return nil, err
	}
	return bytes.Join([][]byte{header, []byte("\n"), b.contents[state.Envs], b.contents[state.Devices]}, nil), nil
}

func length(data []byte) int {
	if data == nil {
		return -1
	}
	return len(data)
}

func parseBackup(data []byte) (*backup, error) {
	header, rest, ok := bytes.Cut(data, []byte("\n"))
	var b backup
	if !ok || json.Unmarshal(header, &b.backupHeader) != nil {
		return nil, errBackup
	}
	envs, devices := max(b.Envs, 0), max(b.Devices, 0)
	if b.Envs < -1 || b.Devices < -1 || envs > len(rest) || devices > len(rest)-envs || len(rest) != envs+devices {
		return nil, fmt.Errorf("%w: it is truncated", errBackup)
	}
	if b.Envs >= 0 {
		b.contents[state.Envs] = rest[:envs:envs]
	}
	if b.Devices >= 0 {
		b.contents[state.Devices] = rest[envs:]
	}
	return &b, nil
}

// readBackup returns root's copy, or nil if there is none of this boot: no process
// outlives a reboot.
func (t *transaction) readBackup() *backup {
	if t.access.root == nil {
		return nil
	}
	data, _, err := t.access.root.Read(backupFile, maxBackup)
	if err != nil {
		return nil
	}
	b, err := parseBackup(data)
	if boot := t.System.BootID(); err != nil || boot == "" || b.BootID != boot {
		return nil
	}
	return b
}

// writeBackup updates root's copy if the contents differ, and says whether root has
// a copy of them. An error is ignored: the state files are written already.
func (t *transaction) writeBackup(next state.Contents) bool {
	if !t.access.writable {
		return false
	}
	if t.backup != nil && t.backup.contents.Equal(next) {
		return true
	}
	b := backup{contents: next, backupHeader: backupHeader{BootID: t.System.BootID(), Taken: t.Now().UTC(), Uptime: t.System.Uptime()}}
	data, err := b.encode()
	if err != nil {
		return false
	}
	t.step("copying")
	if t.access.root.Put(backupFile, data, 0o644, true) != nil {
		return false
	}
	t.step("copied")
	return true
}
