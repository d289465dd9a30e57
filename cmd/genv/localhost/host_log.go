package localhost

import (
	"os"

	"github.com/seed-3119e985/genv/cmd/genv/command"
	"github.com/seed-3119e985/genv/enforce/audit"
	"github.com/seed-3119e985/genv/enforce/local"
	"github.com/seed-3119e985/genv/snapshot"
)

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

// recordRenumbered records which attachments followed their GPUs to other indices. Where nothing
// can be recorded, the warning of the look says it.
func recordRenumbered(p command.Program, text string) {
	if path := HostLog(p.Getenv); path != "" {
		_ = audit.AppendHostLog(path, audit.Record{Time: p.Now().UTC(), Kind: audit.KindRenumbered, Host: snapshot.Hostname(local.Hostname()), Text: text})
	}
}
