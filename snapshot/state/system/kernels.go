package system

import (
	"context"
	"errors"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/seed-3119e985/genv/snapshot"
	"github.com/seed-3119e985/genv/snapshot/nss"
	"github.com/seed-3119e985/genv/snapshot/proc"
)

// Kernel is a user's Jupyter kernel. Others' processes and files don't count, as anyone can register any id.
type Kernel struct {
	ID  string
	UID snapshot.UID
}

// Kernels says which kernels live: a process of their user has the connection file (kernel-ID.json) in its command line
// or, during a restart, it is in their user's runtime folder. What may be hidden is Unknown.
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

// runningKernels finds kernels with a process. Users control both numbers, so it avoids a nested loop.
func (p procfs) runningKernels(pids []snapshot.PID, kernels []Kernel) map[Kernel]Liveness {
	asked := map[string]bool{}
	for _, k := range kernels {
		asked[k.ID] = true
	}
	quotas, named := proc.Quotas{}, map[Kernel]bool{}
	unowned, late := map[string]bool{}, map[snapshot.UID]bool{} // an unread process may be any kernel's
	for _, pid := range pids {
		owner, err := p.owner(pid)
		line, lineErr := p.commandLine(pid, quotas.Of(proc.QuotaKey{UID: owner}))
		late[owner] = late[owner] || errors.Is(lineErr, proc.ErrUnreadable)
		for arg := range strings.SplitSeq(line, "\x00") {
			id, isFile := strings.CutSuffix(filepath.Base(arg), ".json")
			id, isKernel := strings.CutPrefix(id, "kernel-")
			switch {
			case !isFile || !isKernel || !asked[id]:
			case err != nil:
				unowned[id] = true
			default:
				named[Kernel{id, owner}] = true
			}
		}
	}
	lives, all := make(map[Kernel]Liveness, len(kernels)), p.showsAll()
	for _, k := range kernels {
		switch {
		case named[k]:
			lives[k] = Alive
		case all && !unowned[k.ID] && !late[k.UID]:
			lives[k] = Gone
		default:
			lives[k] = Unknown
		}
	}
	return lives
}

func (p procfs) commandLine(pid snapshot.PID, quota *proc.Quota) (string, error) {
	const maxCommandLine = 64 << 10 // bytes: the file is among the first arguments, and megabytes would delay others
	h, err := p.fs.Open(pid)
	if err != nil {
		return "", err
	}
	defer h.Close()
	h.Quota = quota
	line, err := h.Arguments(maxCommandLine)
	return string(line), err
}

// owner is a process's account, or its folder's where /proc hides it.
func (p procfs) owner(pid snapshot.PID) (snapshot.UID, error) {
	if uid, err := p.fs.UID(pid); err == nil {
		return uid, nil
	}
	return p.fs.FolderOwner(pid)
}

const (
	// kernelsWithin limits the search while others wait: a user's folder may never answer (FUSE, a broken NFS). What
	// isn't found is unknown, and searched again.
	kernelsWithin  = time.Second
	maxKernelUsers = 64 // per look, as users can register any uid
)

func (p procfs) kernelFiles(pids []snapshot.PID, kernels map[snapshot.UID][]Kernel) map[Kernel]Liveness {
	ctx, cancel := context.WithTimeout(context.Background(), kernelsWithin)
	defer cancel()
	answers, asked := make(chan map[Kernel]Liveness, len(kernels)), 0
	all := map[Kernel]Liveness{}
	for uid, list := range kernels {
		for _, k := range list {
			all[k] = Unknown
		}
		if asked == maxKernelUsers {
			continue
		}
		if _, pending := p.kernelsPending.LoadOrStore(uid, true); pending {
			continue
		}
		asked++
		go func() {
			folders, complete := p.runtimeFolders(ctx, uid, pids)
			answer := make(map[Kernel]Liveness, len(list))
			for _, k := range list {
				answer[k] = p.kernelFileIn(ctx, folders, complete, k)
			}
			p.kernelsPending.Delete(uid) // before the answer, after which it may be searched again
			answers <- answer
		}()
	}
	for range asked {
		select {
		case answer := <-answers:
			maps.Copy(all, answer)
		case <-ctx.Done():
			return all
		}
	}
	return all
}

// kernelFileIn looks for a kernel's file. complete: no other folder can have it.
func (p procfs) kernelFileIn(ctx context.Context, folders []string, complete bool, k Kernel) Liveness {
	for _, folder := range folders {
		if ctx.Err() != nil { // a user can cause millions of searches
			return Unknown
		}
		has, err := false, error(nil)
		if k.ID != "" && !strings.ContainsAny(k.ID, "/\x00") {
			has, err = p.fs.HasFile(filepath.Join(folder, "kernel-"+k.ID+".json"), k.UID)
		}
		if complete = complete && err == nil; has && err == nil {
			return Alive
		}
	}
	if complete {
		return Gone
	}
	return Unknown
}

// runtimeVariables select Jupyter's runtime folder, at a path below (jupyter_core).
var runtimeVariables = []struct{ name, below string }{
	{"JUPYTER_RUNTIME_DIR", ""},
	{"JUPYTER_DATA_DIR", "runtime"},
	{"XDG_DATA_HOME", "jupyter/runtime"},
	{"XDG_RUNTIME_DIR", "jupyter"},
	{"HOME", ".local/share/jupyter/runtime"},
}

// runtimeFolders may have a user's kernel files. complete: no other can.
func (p procfs) runtimeFolders(ctx context.Context, uid snapshot.UID, pids []snapshot.PID) (
	folders []string, complete bool,
) {
	reader := os.Geteuid()
	within, cancel := context.WithTimeout(ctx, accountWithin)
	account, err := p.accounts.WithUID(within, uid)
	cancel()
	complete = (err == nil || errors.Is(err, nss.ErrNoAccount)) && (reader == 0 || int64(reader) == int64(uid))
	quota := &proc.Quota{}
	add := func(folder string) {
		if filepath.IsAbs(folder) && !slices.Contains(folders, folder) {
			folders = append(folders, folder)
		}
	}
	if account.Home != "" {
		add(filepath.Join(account.Home, ".local/share/jupyter/runtime"))
	}
	for _, pid := range pids {
		if ctx.Err() != nil {
			return nil, false
		}
		if owner, err := p.owner(pid); err != nil || owner != uid {
			continue
		}
		h, err := p.fs.Open(pid)
		if err != nil {
			continue
		}
		h.Quota = quota
		for _, v := range runtimeVariables {
			value, found, err := h.Environ(v.name)
			if unread := errors.Is(err, proc.ErrNotRead) || errors.Is(err, proc.ErrStalled); unread {
				complete = false
			}
			if err == nil && found && value != "" && len(folders) < maxRuntimeFolders {
				add(filepath.Join(value, v.below))
			}
		}
		_ = h.Close()
	}
	return folders, complete && len(folders) < maxRuntimeFolders
}

const maxRuntimeFolders = 64 // more than a user has, except to delay others
