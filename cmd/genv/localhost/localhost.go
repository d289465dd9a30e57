// Package localhost opens this machine as a GPU host for commands: its state files, nvidia-smi and /proc.
package localhost

import (
	"context"
	"path/filepath"
	"time"

	"github.com/seed-3119e985/genv/cmd/genv/command"
	"github.com/seed-3119e985/genv/snapshot"
	"github.com/seed-3119e985/genv/snapshot/container"
	"github.com/seed-3119e985/genv/snapshot/local"
	"github.com/seed-3119e985/genv/snapshot/nss"
	"github.com/seed-3119e985/genv/snapshot/nvidiasmi"
	"github.com/seed-3119e985/genv/snapshot/proc"
	"github.com/seed-3119e985/genv/snapshot/state/disk"
	"github.com/seed-3119e985/genv/snapshot/state/instances"
	"github.com/seed-3119e985/genv/snapshot/state/service"
	"github.com/seed-3119e985/genv/snapshot/state/system"
)

// Host is this machine as a GPU host.
type Host struct {
	Machine *local.Collector
	SMI     *nvidiasmi.Querier // of Machine
	Store   *disk.Store
	// Instances are the MIG instances that attachments are about.
	Instances instances.Notes
	// Unnamed is the name of the user in new environments if the account has none.
	Unnamed snapshot.Username
	// Service is root's service, which changes the state where it belongs to root.
	Service service.Client
	// SharedAccount: see command.Program.
	SharedAccount func(*snapshot.Process)

	contained bool // see ErrContained
	simulated bool
}

// Open is this machine with its state files. Nothing is read yet.
func Open(p command.Program) *Host {
	containers := &container.RunningInits{Run: disk.RunDir(p.Getenv)}
	options := disk.Config{
		Now: p.Now, RootDir: disk.RootDir(p.Getenv), Username: system.Username,
		Keeps: containers.Keeps, Contained: contained(p.Getenv),
	}
	processes := proc.FS{Reader: p.Reader}
	options.System = system.New(processes, nss.Passwd{})
	if p.Getenv("GENV_ROOT_DIR") == "" { // users of simulated hosts need no accounts
		options.Lacks = processes.AllAccounts().Lacks
	}
	if p.SharedAccount != nil {
		options.Username = nil
	}
	var store *disk.Store
	parts := instances.Notes{Dir: disk.Dir(p.Getenv), Owned: func() (string, error) { return store.OwnedDir() }}
	options.Mark = parts.Mark
	store = disk.New(disk.Dir(p.Getenv), options)
	smi := NvidiaSMI(p.Getenv, nvidiasmi.DefaultTimeout)
	machine := &local.Collector{
		Proc: processes, SMI: smi, StateFiles: store, Now: p.Now, Hardware: Hardware(p.Getenv),
		Reservations: store.Reservations,
	}
	h := &Host{
		Machine: machine, SMI: smi, Store: store, Instances: parts, SharedAccount: p.SharedAccount,
		Service:   service.Client{Path: SocketPath(p.Getenv)},
		contained: contained(p.Getenv), simulated: p.Getenv("GENV_ROOT_DIR") != "",
	}
	machine.Service = h.Served
	return h
}

// SocketPath is the path of the socket of root's service.
func SocketPath(getenv func(string) string) string {
	return filepath.Join(disk.RunDir(getenv), service.SocketName)
}

// DevDir is the folder of device nodes: /dev, except for root's genv on simulated hosts, which
// have a GENV_ROOT_DIR: there it may be GENV_DEV_DIR.
func DevDir(getenv func(string) string, uid int) string {
	if uid == 0 && simulated(getenv) {
		return getenv("GENV_DEV_DIR")
	}
	return "/dev"
}

func simulated(getenv func(string) string) bool {
	return getenv("GENV_ROOT_DIR") != "" && filepath.IsAbs(getenv("GENV_DEV_DIR"))
}

// toldWithin is how long root's service may take to say what the policy allows: it may ask the controller.
const toldWithin = 4 * time.Second

// Told is what the controller of this host told it about who asks; nil if there is none, or that is unknown. Only where
// the state is root's a service knows it.
func Told(ctx context.Context, p command.Program) *service.Allowance {
	here := Open(p)
	if served, _ := here.Served(); !served {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, toldWithin)
	defer cancel()
	told, err := here.Service.Allowance(ctx)
	if err != nil {
		return nil
	}
	return told
}
