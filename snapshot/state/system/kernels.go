package system

import (
	"errors"
	"path/filepath"
	"strings"

	"github.com/seed-3119e985/genv/snapshot"
	"github.com/seed-3119e985/genv/snapshot/proc"
)

// Kernel is a Jupyter kernel of a user. Any user can register any id: only that user's processes and files count.
type Kernel struct {
	ID  string
	UID snapshot.UID
}

// Kernels says which kernels live: a process of their user names the connection file (kernel-ID.json) in its command
// line or, as while they restart, that file is in a runtime folder of their user. For other users than root and their
// own, and where something is hidden or doesn't answer, one that isn't found is Unknown.
func (p procfs) Kernels(kernels []Kernel) map[Kernel]Liveness {
	pids, err := p.fs.PIDs()
	if err != nil {
		return nil
	}
	lives := p.runningKernels(pids, kernels)
	missing := map[snapshot.UID][]Kernel{}
	for _, k := range kernels {
		if lives[k] != Alive {
			missing[k.UID] = append(missing[k.UID], k)
		}
	}
	for k, now := range p.kernelFiles(pids, missing) {
		if now != Gone {
			lives[k] = now
		}
	}
	return lives
}

// runningKernels says which kernels have a process. Users choose how many there are, and how many a command line names,
// so neither is walked through for the other.
func (p procfs) runningKernels(pids []snapshot.PID, kernels []Kernel) map[Kernel]Liveness {
	lives, byID := make(map[Kernel]Liveness, len(kernels)), map[string][]Kernel{}
	missing := Unknown
	if p.showsAll() {
		missing = Gone
	}
	for _, k := range kernels {
		lives[k], byID[k.ID] = missing, append(byID[k.ID], k)
	}
	quotas, late := proc.Quotas{}, map[snapshot.UID]bool{}
	for _, pid := range pids {
		owner, err := p.owner(pid)
		line, lineErr := p.commandLine(pid, quotas.Of(proc.Payer{UID: owner}))
		if errors.Is(lineErr, proc.ErrUnreadable) {
			late[owner] = true
		}
		named := kernelsNamed(line, byID)
		if len(named) == 0 {
			continue
		}
		for id := range named {
			if err != nil {
				unsure(lives, byID[id])
			} else if _, known := lives[Kernel{id, owner}]; known {
				lives[Kernel{id, owner}] = Alive
			}
		}
	}
	for _, k := range kernels {
		if late[k.UID] { // a process that wasn't read may be the kernel's
			unsure(lives, []Kernel{k})
		}
	}
	return lives
}

func unsure(lives map[Kernel]Liveness, kernels []Kernel) {
	for _, k := range kernels {
		if lives[k] != Alive {
			lives[k] = Unknown
		}
	}
}

// maxCommandLine is in bytes: the file is among the first arguments, and megabytes would make others wait.
const maxCommandLine = 64 << 10

func (p procfs) commandLine(pid snapshot.PID, quota *proc.Quota) (string, error) {
	h, err := p.fs.Open(pid)
	if err != nil {
		return "", err
	}
	defer func() { _ = h.Close() }() // it was only read
	h.Quota = quota
	line, err := h.Arguments(maxCommandLine)
	return string(line), err
}

// kernelsNamed are those of the asked kernels that a command line names by their connection file.
func kernelsNamed(cmdline string, asked map[string][]Kernel) map[string]bool {
	named := map[string]bool{}
	for arg := range strings.SplitSeq(cmdline, "\x00") {
		id, isFile := strings.CutSuffix(filepath.Base(arg), ".json")
		id, isKernel := strings.CutPrefix(id, "kernel-")
		if isFile && isKernel && asked[id] != nil {
			named[id] = true
		}
	}
	return named
}

// owner is the account of a process, or that of its folder where /proc hides it.
func (p procfs) owner(pid snapshot.PID) (snapshot.UID, error) {
	uid, err := p.fs.UID(pid)
	if err == nil {
		return uid, nil
	}
	return p.fs.FolderOwner(pid)
}
