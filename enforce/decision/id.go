package decision

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"

	"github.com/seed-3119e985/genv/snapshot"
)

// ID is the id of an item of a report: 8 hexadecimal digits. It is made from what the
// controller calls the report and from the process or, if there is a device, the
// attachment, which the record of each machine has. Empty for a report without an ID.
func ID(report string, pid snapshot.PID, eid snapshot.EnvID, device *snapshot.DeviceIndex) string {
	if report == "" {
		return ""
	}
	if device == nil {
		return short("process", report, fmt.Sprint(pid))
	}
	return short("device", report, string(eid), device.String())
}

// WarningID is the id of the warnings about a finding. The same finding at another time
// has the same one.
func WarningID(finding string) string { return short("warning", finding) }

// IsID says whether a text has the form of an id.
func IsID(text string) bool {
	decoded, err := hex.DecodeString(text)
	return err == nil && len(decoded) == idBytes
}

const idBytes = 4

func short(parts ...string) string {
	sum := sha256.New()
	for _, part := range parts {
		fmt.Fprintf(sum, "%d:%s,", len(part), part)
	}
	return hex.EncodeToString(sum.Sum(nil)[:idBytes])
}
