package state

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/seed-3119e985/genv/snapshot"
)

// copyFile is root's last good copy of both state files: a line of JSON, then
// the one, then the other. They are in one file so that they are of one moment.
const copyFile = "last-good"

// maxCopyFile is in bytes: two state files and the line before them.
const maxCopyFile = 2*maxFileSize + 4096

// lastGood is the content of that file.
type lastGood struct {
	copyHeader
	envs, devices []byte // nil for no file
}

type copyHeader struct {
	BootID string             `json:"boot_id"`
	Taken  time.Time          `json:"taken"`
	Uptime snapshot.StartTime `json:"taken_start_time"` // what starts later has a higher start time
	// The lengths of what follows, -1 for no file.
	Envs    int `json:"envs_bytes"`
	Devices int `json:"devices_bytes"`
}

var errCopy = errors.New("not a copy of state files")

func (c *lastGood) encode() ([]byte, error) {
	c.Envs, c.Devices = length(c.envs), length(c.devices)
	header, err := json.Marshal(c.copyHeader)
	if err != nil {
		return nil, err
	}
	return bytes.Join([][]byte{header, []byte("\n"), c.envs, c.devices}, nil), nil
}

func length(data []byte) int {
	if data == nil {
		return -1
	}
	return len(data)
}

func parseLastGood(data []byte) (*lastGood, error) {
	header, rest, ok := bytes.Cut(data, []byte("\n"))
	var c lastGood
	if !ok || json.Unmarshal(header, &c.copyHeader) != nil {
		return nil, errCopy
	}
	envs, devices := max(c.Envs, 0), max(c.Devices, 0)
	if c.Envs < -1 || c.Devices < -1 || envs > len(rest) || devices > len(rest)-envs || len(rest) != envs+devices {
		return nil, fmt.Errorf("%w: it is cut", errCopy)
	}
	if c.Envs >= 0 {
		c.envs = rest[:envs:envs]
	}
	if c.Devices >= 0 {
		c.devices = rest[envs:]
	}
	return &c, nil
}

// recallCopy reads root's copy; nil where there is none of this boot, since no
// process outlives a reboot.
func (s *Store) recallCopy(v *view) *lastGood {
	if v.root == nil {
		return nil
	}
	data, err := v.root.readBounded(copyFile, maxCopyFile)
	if err != nil {
		return nil
	}
	c, err := parseLastGood(data)
	if boot := s.machine.BootID(); err != nil || boot == "" || c.BootID != boot {
		return nil
	}
	return c
}

// keepCopy writes the copy if its content has changed, and says whether there is
// one of it now. Its errors don't matter to the caller: the state files are written
// already.
func (s *Store) keepCopy(v *view, old *lastGood, envs, devices []byte) (kept bool) {
	if !v.writable {
		return false
	}
	if old != nil && same(old.envs, envs) && same(old.devices, devices) {
		return true
	}
	next := lastGood{envs: envs, devices: devices, copyHeader: copyHeader{BootID: s.machine.BootID(), Taken: s.now().UTC(), Uptime: s.machine.Uptime()}}
	data, err := next.encode()
	if err != nil {
		return false
	}
	s.step("copying")
	if v.root.put(copyFile, data, 0o644) != nil {
		return false
	}
	s.step("copied")
	return true
}

func same(a, b []byte) bool { return (a == nil) == (b == nil) && bytes.Equal(a, b) }
