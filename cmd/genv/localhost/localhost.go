package localhost

import (
	"os"
	"time"

	"github.com/seed-3119e985/genv/snapshot/local"
	"github.com/seed-3119e985/genv/snapshot/state"
)

// Host is this machine as a GPU host.
type Host struct {
	Machine *local.Machine
	Store   *state.Store
	// OneAccount: see Open.
	OneAccount bool
}

// Open finds the state files. nvidia-smi is looked for when it is first needed.
func Open(getenv func(string) string, now func() time.Time) (*Host, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	options := state.StoreOptions{Now: now, RootDir: state.RootDir(getenv), Username: state.Users{}.Username}
	// One account plays several users, as in the demo: envs.json is believed, and
	// the uids of processes aren't reported. sudo lets no such variable through.
	oneAccount := getenv("GENV_NAMES") == "books"
	if oneAccount {
		options.Username = nil
	}
	store := state.New(state.Dir(getenv), options)
	smi := &lateSMI{path: getenv("PATH"), self: self, lock: smiLock(getenv, os.Geteuid())}
	return &Host{Machine: &local.Machine{SMI: smi, Books: store, Now: now}, Store: store, OneAccount: oneAccount}, nil
}

// DefaultAuditLog is where root's genv records what it does on a host.
const DefaultAuditLog = "/var/log/genv/audit.jsonl"
