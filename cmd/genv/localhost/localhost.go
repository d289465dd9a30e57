package localhost

import (
	"github.com/seed-3119e985/genv/cmd/genv/command"
	"github.com/seed-3119e985/genv/snapshot/local"
	"github.com/seed-3119e985/genv/snapshot/state/disk"
)

// Host is this machine as a GPU host.
type Host struct {
	Machine *local.Collector
	Store   *disk.Store
	// SharedAccount: see command.Program.
	SharedAccount bool
}

// Open is this machine with its state files. Nothing is read yet.
func Open(p command.Program) *Host {
	options := disk.Config{Now: p.Now, RootDir: disk.RootDir(p.Getenv), Username: disk.Users{}.Username}
	if p.SharedAccount {
		options.Username = nil
	}
	store := disk.New(disk.Dir(p.Getenv), options)
	smi := NvidiaSMI(p.Getenv, smiTimeout)
	return &Host{Machine: &local.Collector{SMI: smi, StateFiles: store, Now: p.Now}, Store: store, SharedAccount: p.SharedAccount}
}

// DefaultAuditLog is where root's genv records what it does on a host.
const DefaultAuditLog = "/var/log/genv/audit.jsonl"
