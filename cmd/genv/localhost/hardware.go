package localhost

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"os"
	"path/filepath"
	"time"

	"github.com/rs/zerolog"

	"github.com/seed-3119e985/genv/snapshot/hardware"
	"github.com/seed-3119e985/genv/snapshot/nvidiasmi"
	"github.com/seed-3119e985/genv/snapshot/state/disk"
	"github.com/seed-3119e985/genv/snapshot/watch"
)

// smiLock is the path of the lock file for the nvidia-smi at path, which keeps hanging ones from piling up: for root in
// RunDir, for other users in their $XDG_RUNTIME_DIR, or none. Its name depends on the program and the state folder,
// since simulated hosts on one machine have different GPUs.
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

// NvidiaSMI asks the nvidia-smi of this machine; no call takes longer than timeout.
func NvidiaSMI(getenv func(string) string, timeout time.Duration) *nvidiasmi.Querier {
	return nvidiasmi.New(smiInPath{getenv}, timeout)
}

// smiInPath is the nvidia-smi in PATH. It is searched for when it is run: most commands
// don't need it, and it may be installed while a loop runs.
type smiInPath struct{ getenv func(string) string }

func (s smiInPath) find() (string, error) {
	self, err := os.Executable()
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
	return nvidiasmi.Exec{Path: path, Lock: smiLock(s.getenv, os.Geteuid(), path)}.Run(ctx, args...)
}

// Hardware is where this process learns what the GPUs of this machine are.
func Hardware(getenv func(string) string) hardware.Catalog {
	return hardware.Catalog{
		Run: disk.RunDir(getenv), Proc: driverProc(getenv), Dev: DevDir(getenv, os.Geteuid()),
		Root: os.Geteuid() == 0, Contained: contained(getenv),
	}
}

// driverProc is the folder with NVIDIA's driver/nvidia/gpus: /proc, or on a simulated host
// the folder proc in GENV_ROOT_DIR, also where the machine below has a driver.
func driverProc(getenv func(string) string) string {
	if root := getenv("GENV_ROOT_DIR"); root != "" {
		proc := filepath.Join(root, "proc")
		if _, err := os.Stat(filepath.Join(proc, "driver/nvidia/gpus")); err == nil || simulated(getenv) {
			return proc
		}
	}
	return "/proc"
}

// Watch begins to watch this machine for reasons to look at it. The caller closes the Watcher.
func (h *Host) Watch(getenv func(string) string, log zerolog.Logger) *watch.Watcher {
	smi := smiInPath{getenv}
	return watch.Open(watch.Config{
		DevDir:    DevDir(getenv, os.Geteuid()),
		StateDirs: []string{disk.Dir(getenv), h.Store.OwnedPath()},
		RunDir:    disk.RunDir(getenv),
		Proc:      h.Machine.Proc,
		SMI: func() string {
			path, _ := smi.find() // empty if there is none
			return path
		},
		Debug: func(text string, err error) { log.Debug().Err(err).Msg(text) },
	})
}
