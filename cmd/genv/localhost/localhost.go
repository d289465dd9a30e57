// Package localhost opens this machine as a GPU host: its state files, nvidia-smi and /proc.
package localhost

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/rs/zerolog"

	"github.com/seed-3119e985/genv/cmd/genv/command"
	"github.com/seed-3119e985/genv/snapshot"
	"github.com/seed-3119e985/genv/snapshot/container"
	"github.com/seed-3119e985/genv/snapshot/hardware"
	"github.com/seed-3119e985/genv/snapshot/local"
	"github.com/seed-3119e985/genv/snapshot/nss"
	"github.com/seed-3119e985/genv/snapshot/nvidiasmi"
	"github.com/seed-3119e985/genv/snapshot/proc"
	"github.com/seed-3119e985/genv/snapshot/state/disk"
	"github.com/seed-3119e985/genv/snapshot/state/instances"
	"github.com/seed-3119e985/genv/snapshot/state/service"
	"github.com/seed-3119e985/genv/snapshot/state/system"
	"github.com/seed-3119e985/genv/snapshot/watch"
)

// Host is this machine as a GPU host.
type Host struct {
	Machine       *local.Collector
	SMI           *nvidiasmi.Querier // of Machine
	Store         *disk.Store
	Instances     instances.Notes         // MIG instances of attachments
	Unnamed       snapshot.Username       // the user's name if the account has none
	Service       service.Client          // root's service, which changes the state that it owns
	SharedAccount func(*snapshot.Process) // see command.Program

	contained bool // see ErrContained
	simulated bool
}

// Open reads nothing yet.
func Open(p command.Program) *Host {
	h := &Host{
		SharedAccount: p.SharedAccount, Service: service.Client{Path: SocketPath(p.Getenv)},
		contained: contained(p.Getenv), simulated: p.Getenv("GENV_ROOT_DIR") != "",
	}
	containers := &container.RunningInits{Run: disk.RunDir(p.Getenv)}
	processes := proc.FS{Reader: p.Reader}
	options := disk.Config{
		Now: p.Now, RootDir: disk.RootDir(p.Getenv), Username: system.Username, Lacks: h.Lacks,
		Keeps: containers.Keeps, Contained: h.contained, System: system.New(processes, nss.Passwd{}),
	}
	if p.SharedAccount != nil {
		options.Username = nil
	}
	h.Instances = instances.Notes{
		Dir: disk.Dir(p.Getenv), Owned: func() (string, error) { return h.Store.OwnedDir() },
	}
	options.Mark = h.Instances.Mark
	h.Store, h.SMI = disk.New(disk.Dir(p.Getenv), options), NvidiaSMI(p.Getenv, nvidiasmi.DefaultTimeout)
	h.Machine = &local.Collector{
		Proc: processes, SMI: h.SMI, StateFiles: h.Store, Now: p.Now, Hardware: Hardware(p.Getenv),
		Reservations: h.Store.Reservations,
	}
	return h
}

// SocketPath is the socket of root's service.
func SocketPath(getenv func(string) string) string {
	return filepath.Join(disk.RunDir(getenv), service.SocketName)
}

// DevDir is the folder of device nodes: /dev, or GENV_DEV_DIR for root's genv on a simulated host.
func DevDir(getenv func(string) string, uid int) string {
	if uid == 0 && simulated(getenv) {
		return getenv("GENV_DEV_DIR")
	}
	return "/dev"
}

func simulated(getenv func(string) string) bool {
	return getenv("GENV_ROOT_DIR") != "" && filepath.IsAbs(getenv("GENV_DEV_DIR"))
}

// Told is what a controller told root's service about this user; nil for nothing or unknown.
func Told(ctx context.Context, p command.Program) *service.Allowance {
	here := Open(p)
	if served, _ := here.Served(); !served {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, 4*time.Second) // the service may ask the controller
	defer cancel()
	told, err := here.Service.Allowance(ctx)
	if err != nil {
		return nil
	}
	return told
}

// smiLock is the lock file that keeps hanging calls of nvidia-smi from piling up: in RunDir for root, in
// $XDG_RUNTIME_DIR for other users, or none. Its name depends on the program and the state folder, because simulated
// hosts on one machine have different GPUs.
func smiLock(getenv func(string) string, uid int, path string) string {
	dir := disk.RunDir(getenv)
	if runtime := getenv("XDG_RUNTIME_DIR"); uid != 0 {
		if !filepath.IsAbs(runtime) {
			return ""
		}
		dir = filepath.Join(runtime, "genv")
	}
	if program, err := filepath.EvalSymlinks(path); err == nil {
		path = program
	}
	key := sha256.Sum256([]byte(path + "\x00" + filepath.Clean(disk.Dir(getenv))))
	return filepath.Join(dir, "nvidia-smi."+hex.EncodeToString(key[:8])+".lock")
}

// NvidiaSMI queries this machine's nvidia-smi. timeout limits each call.
func NvidiaSMI(getenv func(string) string, timeout time.Duration) *nvidiasmi.Querier {
	return nvidiasmi.New(smiInPath{getenv, new(sync.Map)}, timeout)
}

// smiInPath is the nvidia-smi in PATH. Each run looks for it, because it may be installed while a loop runs.
type smiInPath struct {
	getenv func(string) string
	locks  *sync.Map // results of smiLock
}

// executable is this program's path as it was started, which the kernel doesn't have to find out for each look.
var executable = sync.OnceValues(os.Executable)

func (s smiInPath) find() (string, error) {
	self, err := executable()
	if err != nil {
		return "", err
	}
	return nvidiasmi.Find(s.getenv("PATH"), self)
}

// Run implements nvidiasmi.Runner.
func (s smiInPath) Run(ctx context.Context, args ...string) (nvidiasmi.RunResult, error) {
	path, err := s.find()
	if err != nil {
		return nvidiasmi.RunResult{}, err
	}
	lock, known := s.locks.Load(path)
	if !known {
		lock, _ = s.locks.LoadOrStore(path, smiLock(s.getenv, os.Geteuid(), path))
	}
	return nvidiasmi.Exec{Path: path, Lock: lock.(string)}.Run(ctx, args...)
}

// Hardware is where this process learns about this machine's GPUs.
func Hardware(getenv func(string) string) hardware.Catalog {
	return hardware.Catalog{
		Run: disk.RunDir(getenv), Proc: driverProc(getenv), Dev: DevDir(getenv, os.Geteuid()),
		Root: os.Geteuid() == 0, Contained: contained(getenv),
	}
}

// driverProc is the folder with NVIDIA's driver/nvidia/gpus: /proc, or proc in GENV_ROOT_DIR on a simulated host.
func driverProc(getenv func(string) string) string {
	if root := getenv("GENV_ROOT_DIR"); root != "" {
		proc := filepath.Join(root, "proc")
		if _, err := os.Stat(filepath.Join(proc, "driver/nvidia/gpus")); err == nil || simulated(getenv) {
			return proc
		}
	}
	return "/proc"
}

// Watch watches this machine for reasons to look at it. The caller closes the Watcher.
func (h *Host) Watch(getenv func(string) string, log zerolog.Logger) *watch.Watcher {
	smi := smiInPath{getenv: getenv}
	return watch.Open(watch.Config{
		DevDir:    DevDir(getenv, os.Geteuid()),
		StateDirs: []string{disk.Dir(getenv), h.Store.OwnedPath()},
		RunDir:    disk.RunDir(getenv),
		Proc:      h.Machine.Proc,
		SMI: func() string {
			path, _ := smi.find() // empty for none
			return path
		},
		Debug: func(text string, err error) { log.Debug().Err(err).Msg(text) },
	})
}
