package localhost

import "os"

// DefaultAuditLog is where root's genv records what it does on a host.
const DefaultAuditLog = "/var/log/genv/audit.jsonl"

// HostLog is the audit log of this host; "" for none. Users other than root have none
// unless GENV_AUDIT_LOG names it.
func HostLog(getenv func(string) string) string {
	switch path := getenv("GENV_AUDIT_LOG"); {
	case path == "off", path == "" && os.Geteuid() != 0:
		return ""
	case path != "":
		return path
	}
	return DefaultAuditLog
}
