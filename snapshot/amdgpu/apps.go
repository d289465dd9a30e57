package amdgpu

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"

	"golang.org/x/sys/unix"

	"github.com/seed-3119e985/genv/snapshot"
	"github.com/seed-3119e985/genv/snapshot/nvidiasmi"
)

// use is what a process does with a GPU.
type use struct {
	pid snapshot.PID
	gpu snapshot.GPUUUID
}

// Apps lists the compute processes, in ascending order of PID. A process of kfd uses a GPU if
// it has memory or a queue there: kfd lists each process for all GPUs.
func (f FS) Apps(ctx context.Context) (nvidiasmi.Usage, error) {
	nodes, err := f.nodes()
	if err != nil {
		return nvidiasmi.Usage{}, err
	}
	computing, pids, err := f.computing(ctx, nodes)
	if err != nil {
		return nvidiasmi.Usage{}, err
	}
	clients, err := f.clients(ctx, pids)
	if err != nil {
		return nvidiasmi.Usage{}, err
	}
	addClients(computing, pids, clients, nodes)
	var usage nvidiasmi.Usage
	for _, u := range slices.SortedFunc(maps.Keys(computing), func(a, b use) int {
		return cmp.Or(cmp.Compare(a.pid, b.pid), cmp.Compare(a.gpu, b.gpu))
	}) {
		app := nvidiasmi.App{GPU: u.gpu, PID: u.pid}
		if bytes := computing[u]; bytes != unknown {
			app.Memory = snapshot.MiB(int64(bytes >> 20))
		}
		usage.Apps = append(usage.Apps, app)
	}
	return usage, nil
}

// unknown is an amount of memory that the kernel doesn't report.
const unknown = ^uint64(0)

// computing are the processes of kfd with their memory in bytes, and all PIDs of kfd.
func (f FS) computing(ctx context.Context, nodes []node) (map[use]uint64, map[snapshot.PID]bool, error) {
	entries, err := os.ReadDir(f.kfd("proc"))
	if err != nil {
		return nil, nil, fmt.Errorf("which processes use the AMD GPUs is unknown: %w", err)
	}
	found, pids := map[use]uint64{}, map[snapshot.PID]bool{}
	for _, e := range entries {
		pid, err := strconv.ParseInt(e.Name(), 10, 32)
		if err != nil || pid < 1 {
			return nil, nil, garbled(e.Name())
		}
		if ctx.Err() != nil {
			return nil, nil, context.Cause(ctx)
		}
		pids[snapshot.PID(pid)] = true
		queues, err := f.queues(e.Name())
		if err != nil {
			return nil, nil, err
		}
		for _, n := range nodes {
			memory, err := readNumber(f.kfd("proc", e.Name(), fmt.Sprintf("vram_%d", n.id)))
			switch {
			case errors.Is(err, fs.ErrNotExist): // older kernels, or the process has ended
				memory = unknown
			case err != nil || memory > maxBytes:
				return nil, nil, cmp.Or(err, garbled(fmt.Sprint(memory)))
			}
			if queues[n.id] || memory != 0 && memory != unknown {
				found[use{snapshot.PID(pid), n.uuid}] = memory
			}
		}
	}
	return found, pids, nil
}

// queues are the ids of the GPUs on which a process has queues.
func (f FS) queues(pid string) (map[uint64]bool, error) {
	entries, err := os.ReadDir(f.kfd("proc", pid, "queues"))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	found := map[uint64]bool{}
	for _, e := range entries {
		id, err := readNumber(f.kfd("proc", pid, "queues", e.Name(), "gpuid"))
		if errors.Is(err, fs.ErrNotExist) { // it has ended
			continue
		}
		if err != nil {
			return nil, err
		}
		found[id] = true
	}
	return found, nil
}

// addClients adds what is known about the render nodes of processes: the memory where kfd
// reports less, and those that compute without kfd.
func addClients(computing map[use]uint64, pids map[snapshot.PID]bool, clients map[snapshot.PID][]client, nodes []node) {
	gpus := map[string]int{}
	for _, n := range nodes {
		gpus[n.address]++
	}
	for pid, list := range clients {
		for _, n := range nodes {
			if gpus[n.address] > 1 { // partitions of a GPU, which only kfd tells apart
				continue
			}
			total, ok := together(list, n.address)
			u := use{pid, n.uuid}
			memory, computes := computing[u]
			switch {
			case !ok:
			case computes && (memory == unknown || total.vram > memory):
				computing[u] = total.vram
			case !computes && !pids[pid] && total.compute > 0 && total.gfx == 0:
				computing[u] = total.vram
			}
		}
	}
}

// together is the sum of the clients of a process on a GPU; ok says that there are any.
func together(list []client, address string) (sum client, ok bool) {
	seen := map[uint64]bool{}
	for _, c := range list {
		if c.address != address || seen[c.id] {
			continue
		}
		seen[c.id], ok = true, true
		sum.vram, sum.compute, sum.gfx = sum.vram+c.vram, sum.compute+c.compute, sum.gfx+c.gfx
	}
	return sum, ok
}

// clients reads the fdinfo of open render nodes, of the processes that this user may look at:
// all, or if they were searched recently those that were found, and those of kfd.
func (f FS) clients(ctx context.Context, kfd map[snapshot.PID]bool) (map[snapshot.PID][]client, error) {
	pids, recent := f.Recent.last()
	if recent {
		pids = slices.AppendSeq(slices.Clone(pids), maps.Keys(kfd))
		slices.Sort(pids)
		return f.clientsOf(ctx, slices.Compact(pids))
	}
	pids, err := f.processes()
	if err != nil {
		return nil, err
	}
	found, err := f.clientsOf(ctx, pids)
	if err == nil {
		f.Recent.searched(found)
	}
	return found, err
}

func (f FS) proc(elements ...string) string {
	return filepath.Join(append([]string{cmp.Or(f.Proc, "/proc")}, elements...)...)
}

// processes are all processes of the machine.
func (f FS) processes() (pids []snapshot.PID, err error) {
	entries, err := os.ReadDir(f.proc())
	for _, e := range entries {
		if pid, err := strconv.ParseInt(e.Name(), 10, 32); err == nil {
			pids = append(pids, snapshot.PID(pid))
		}
	}
	return pids, err
}

func (f FS) clientsOf(ctx context.Context, pids []snapshot.PID) (map[snapshot.PID][]client, error) {
	found := map[snapshot.PID][]client{}
	for _, pid := range pids {
		if ctx.Err() != nil {
			return nil, context.Cause(ctx)
		}
		folder := f.proc(strconv.Itoa(int(pid)))
		for _, file := range renderNodes(filepath.Join(folder, "fd")) {
			data, err := read(filepath.Join(folder, "fdinfo", file))
			if err != nil {
				continue
			}
			if c, ok := parseClient(data); ok {
				found[pid] = append(found[pid], c)
			}
		}
	}
	return found, nil
}

// renderNodes are the open files in a folder /proc/PID/fd that are render nodes. There are none
// if the process has ended, or is another user's. Machines have tens of thousands of open
// files: it makes one system call for each.
func renderNodes(folder string) (nodes []string) {
	dir, err := os.Open(folder)
	if err != nil {
		return nil
	}
	defer dir.Close()
	files, _ := dir.Readdirnames(-1)
	var target [len(renderNode)]byte // the rest doesn't matter
	for _, file := range files {
		n, err := unix.Readlinkat(int(dir.Fd()), file, target[:])
		if err == nil && string(target[:n]) == renderNode {
			nodes = append(nodes, file)
		}
	}
	return nodes
}
