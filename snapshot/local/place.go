package local

import (
	"cmp"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"os"
	"strings"
)

// applicationID is genv's for machine-id(5): the machine's id itself is not to
// be given away.
var applicationID = [16]byte{0x3b, 0x0e, 0x6c, 0x1f, 0x52, 0x9d, 0x4a, 0x77, 0x8c, 0x41, 0xd2, 0x5e, 0x90, 0xf6, 0x1a, 0xb8}

// machineID is what sd_id128_get_machine_app_specific(3) gives for the machine
// id in a file: HMAC-SHA256 of the application's id, keyed with the machine's,
// marked as a random UUID. Empty where there is none.
func machineID(path string) string {
	text, err := os.ReadFile(cmp.Or(path, "/etc/machine-id"))
	if err != nil {
		return ""
	}
	key, err := hex.DecodeString(strings.TrimSpace(string(text)))
	if err != nil || len(key) != 16 {
		return "" // "uninitialized", in an image that has never booted
	}
	mac := hmac.New(sha256.New, key)
	_, _ = mac.Write(applicationID[:]) // never fails
	id := mac.Sum(nil)[:16]
	id[6] = id[6]&0x0f | 0x40
	id[8] = id[8]&0x3f | 0x80
	return hex.EncodeToString(id)
}

// machineID is asked for once: it does not change while the machine runs.
func (c *Collector) machineID() string {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.memory.machineID == nil {
		id := machineID(c.MachineIDFile)
		c.memory.machineID = &id
	}
	return *c.memory.machineID
}

// folder is where the state files are, for Books that can tell.
func (c *Collector) folder() (string, error) {
	if books, ok := c.StateFiles.(interface{ FolderID() (string, error) }); ok {
		return books.FolderID()
	}
	return "", nil
}
