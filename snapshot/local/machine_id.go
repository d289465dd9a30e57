package local

import (
	"cmp"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"os"
	"strings"
)

// applicationID is genv's application id. machine-id(5) asks programs not to publish
// the machine's id itself.
var applicationID = [16]byte{0x3b, 0x0e, 0x6c, 0x1f, 0x52, 0x9d, 0x4a, 0x77, 0x8c, 0x41, 0xd2, 0x5e, 0x90, 0xf6, 0x1a, 0xb8}

// machineID is what sd_id128_get_machine_app_specific(3) returns for the machine id in a
// file: HMAC-SHA256 of the application id, with the machine id as the key, marked as a
// random UUID. It is empty if there is no machine id.
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

// machineID is read once: it does not change while the machine runs.
func (c *Collector) machineID() string {
	c.readMachineID.Do(func() { c.machineIDHash = machineID(c.MachineIDFile) })
	return c.machineIDHash
}
