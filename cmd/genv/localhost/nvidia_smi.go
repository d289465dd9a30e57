package localhost

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"path/filepath"
	"time"

	"github.com/seed-3119e985/genv/snapshot/nvidiasmi"
	"github.com/seed-3119e985/genv/snapshot/state"
)

// smiTimeout is how long nvidia-smi may take: without persistence mode it takes up to
// 3 s for each GPU, and a controller waits 30 s for the whole command.
const smiTimeout = 25 * time.Second

// smiLock returns the path of the lock file for an nvidia-smi, which keeps hanging
// ones from piling up: for root in /run/genv, or in GENV_ROOT_DIR, which sudo doesn't
// pass on; for other users in their $XDG_RUNTIME_DIR, or none. Its name depends on the
// program and the state folder, since simulated hosts on one machine have different
// GPUs.
func smiLock(getenv func(string) string, uid int) func(path string) string {
	dir := "/run/genv"
	switch root, runtime := getenv("GENV_ROOT_DIR"), getenv("XDG_RUNTIME_DIR"); {
	case uid != 0 && !filepath.IsAbs(runtime):
		return func(string) string { return "" }
	case uid != 0:
		dir = filepath.Join(runtime, "genv")
	case root != "":
		dir = filepath.Join(root, "run")
	}
	return func(path string) string {
		if program, err := filepath.EvalSymlinks(path); err == nil {
			path = program
		}
		key := sha256.Sum256([]byte(path + "\x00" + filepath.Clean(state.Dir(getenv))))
		return filepath.Join(dir, "nvidia-smi."+hex.EncodeToString(key[:8])+".lock")
	}
}

// lazySMI looks for nvidia-smi when it is first needed: most commands don't need it.
type lazySMI struct {
	path, self string
	lock       func(path string) string
	client     *nvidiasmi.Client
}

func (s *lazySMI) find() (*nvidiasmi.Client, error) {
	if s.client == nil {
		path, err := nvidiasmi.Find(s.path, s.self)
		if err != nil {
			return nil, err
		}
		s.client = nvidiasmi.New(nvidiasmi.Exec{Path: path, Lock: s.lock(path)}, smiTimeout)
	}
	return s.client, nil
}

func (s *lazySMI) Apps(ctx context.Context) (nvidiasmi.Usage, error) {
	client, err := s.find()
	if err != nil {
		return nvidiasmi.Usage{}, err
	}
	return client.Apps(ctx)
}

func (s *lazySMI) Devices(ctx context.Context) ([]nvidiasmi.GPU, error) {
	client, err := s.find()
	if err != nil {
		return nil, err
	}
	return client.Devices(ctx)
}

func (s *lazySMI) List(ctx context.Context) ([]nvidiasmi.ListedGPU, error) {
	client, err := s.find()
	if err != nil {
		return nil, err
	}
	return client.List(ctx)
}
