package localhost

import (
	"os"

	"github.com/seed-3119e985/genv/cmd/genv/command"
	"github.com/seed-3119e985/genv/snapshot/local"
	"github.com/seed-3119e985/genv/snapshot/state"
)

// Host is this machine as a GPU host.
type Host struct {
	Machine *local.Collector
	Store   *state.Store
	// SharedAccount: see command.Program.
	SharedAccount bool
}

// Open finds the state files. nvidia-smi is looked for when it is first needed.
func Open(p command.Program) (*Host, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	options := state.StoreOptions{Now: p.Now, RootDir: state.RootDir(p.Getenv), Username: state.Users{}.Username}
	if p.SharedAccount {
		options.Username = nil
	}
	store := state.New(state.Dir(p.Getenv), options)
	smi := &lazySMI{path: p.Getenv("PATH"), self: self, lock: smiLock(p.Getenv, os.Geteuid())}
	return &Host{Machine: &local.Collector{SMI: smi, StateFiles: store, Now: p.Now}, Store: store, SharedAccount: p.SharedAccount}, nil
}

// DefaultAuditLog is where root's genv records what it does on a host.
const DefaultAuditLog = "/var/log/genv/audit.jsonl"
