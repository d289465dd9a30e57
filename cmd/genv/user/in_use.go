package user

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/seed-3119e985/genv/snapshot"
	"github.com/seed-3119e985/genv/snapshot/gpus"
	"github.com/seed-3119e985/genv/snapshot/nvidiasmi"
	"github.com/seed-3119e985/genv/snapshot/state/system"
	"github.com/seed-3119e985/genv/snapshot/text"
)

// How long a look at the GPUs that are in use may take, and after which time the user is told why it takes long.
const (
	inUseTimeout = 10 * time.Second
	inUseSlow    = 2 * time.Second
)

// inUse is what is known of the GPUs, without the processes in the caller's environment.
type inUse struct {
	gpus   []gpus.GPU
	hidden []snapshot.DeviceIndex // by a guard
	failed string                 // why only root's last look is known, or nothing; empty for neither
	// only are the GPUs that may be given out, since there was no answer in time; nil for all.
	only []snapshot.DeviceIndex
}

// inUseByOthers may run nvidia-smi, so it must not be called with the lock held.
func (p *program) inUseByOthers(ctx context.Context, w *hostUser, eid snapshot.EnvID, uid snapshot.UID) inUse {
	within, cancel := context.WithTimeout(ctx, inUseTimeout)
	defer cancel()
	look := w.ownLook
	if !w.Store.MayWrite() {
		look = w.rootsLook
	}
	slow := time.AfterFunc(inUseSlow, func() {
		p.Warn(fmt.Sprintf("nvidia-smi takes long: waiting for it up to %s", inUseTimeout))
	})
	seen, err := look(within)
	slow.Stop()
	if err != nil {
		return w.unseen(err, errors.Is(within.Err(), context.DeadlineExceeded))
	}
	user := gpus.UserName(system.Username(ctx, uid), &uid)
	for i := range seen.gpus {
		g := &seen.gpus[i]
		g.Processes = slices.DeleteFunc(g.Processes, func(p gpus.Process) bool {
			return eid != "" && p.EID == eid && p.User == user
		})
	}
	return seen
}

// unseen is what is known after a look that failed: what root's genv saw last. Without an answer in time only what was
// free then is given out.
func (w *hostUser) unseen(err error, late bool) inUse {
	last, known := w.Machine.LastLook()
	u := inUse{gpus: last.GPUs, failed: err.Error()}
	if late {
		u.failed = fmt.Sprintf("there was no answer within %s", inUseTimeout)
	}
	if late || errors.Is(err, nvidiasmi.ErrTimeout) || errors.Is(err, nvidiasmi.ErrHung) {
		u.only = last.Free()
	}
	if known {
		u.failed += last.Time.Local().Format("; what root saw at 15:04 on 2006-01-02 counts")
	}
	return u
}

// ownLook is what this user's nvidia-smi and /proc show. A guard may hide devices.
func (w *hostUser) ownLook(ctx context.Context) (inUse, error) {
	s, err := w.Machine.Snapshot(ctx)
	if err != nil {
		return inUse{}, err
	}
	seen := inUse{gpus: gpus.Of(s), hidden: w.Machine.Hidden()}
	if last, known := w.Machine.LastLook(); known {
		for i := range seen.gpus {
			g := &seen.gpus[i]
			at := slices.IndexFunc(last.GPUs, func(l gpus.GPU) bool { return l.Index == g.Index && l.UUID == g.UUID })
			if at >= 0 && slices.Contains(seen.hidden, g.Index) {
				last.GPUs[at].Attached, last.GPUs[at].Processes = g.Attached, g.Processes
				*g = last.GPUs[at]
			}
		}
	}
	return seen, nil
}

// rootsLook is what root's service sees, from which a guard hides nothing.
func (w *hostUser) rootsLook(ctx context.Context) (seen inUse, err error) {
	document, err := w.Service.Look(ctx, "gpus")
	if err == nil {
		if err = json.Unmarshal(document, &seen.gpus); err != nil {
			err = fmt.Errorf("the service gave an answer that is not understood: %w", err)
		}
	}
	return seen, err
}

// maxInUse is how many processes are named.
const maxInUse = 8

// warnings name the processes that use the devices that were attached, and say of which devices it is unknown.
func (u *inUse) warnings(attached []snapshot.DeviceIndex) []string {
	var lines []string
	doubtful := make(map[[2]string][]snapshot.DeviceIndex)
	for _, index := range attached {
		g := u.gpu(index)
		for i := range g.Processes {
			lines = append(lines, useLine(index, &g.Processes[i]))
		}
		if about, why := u.doubt(g); why != "" {
			doubtful[[2]string{why, about}] = append(doubtful[[2]string{why, about}], index)
		}
	}
	if more := len(lines) - maxInUse; more > 0 {
		lines = append(lines[:maxInUse], fmt.Sprintf("Warning: %d more processes use them; see `genv gpus`", more))
	}
	for _, d := range slices.SortedFunc(maps.Keys(doubtful), func(a, b [2]string) int { return cmp.Compare(a[0], b[0]) }) {
		lines = append(lines, fmt.Sprintf(d[1], text.JoinIndices(doubtful[d]), d[0]))
	}
	return lines
}

// gpu is the GPU at an index; one in an unknown state if it wasn't seen.
func (u *inUse) gpu(index snapshot.DeviceIndex) *gpus.GPU {
	if i := slices.IndexFunc(u.gpus, func(g gpus.GPU) bool { return g.Index == index }); i >= 0 {
		return &u.gpus[i]
	}
	return &gpus.GPU{Index: index, State: gpus.Unknown}
}

// doubt is why a GPU may not be what it seems, and the format for the GPUs and why; both are empty if there is none.
func (u *inUse) doubt(g *gpus.GPU) (about, why string) {
	const usersUnknown = "Warning: it is unknown whether other processes use GPU %s: %s"
	switch {
	case u.failed != "":
		return usersUnknown, u.failed
	case g.Problem != "":
		return "Warning: GPU %s may not work well: %s", "the driver reports " + string(g.Problem)
	case slices.Contains(u.hidden, g.Index):
		return usersUnknown, "a guard hid them from you; nvidia-smi shows them from now on"
	case g.State != gpus.Unknown:
		return "", ""
	case g.Unexplained() > 0:
		return usersUnknown, "no visible process accounts for " + text.GiB(g.Unexplained()) + " of its used memory"
	}
	return usersUnknown, "not all processes on it can be seen; `genv gpus` shows what is known"
}

func useLine(index snapshot.DeviceIndex, p *gpus.Process) string {
	s := fmt.Sprintf("Warning: GPU %d is in use by process %d", index, p.PID)
	if p.User != "" {
		s += " of " + gpus.ShownUser(p.User)
	}
	if p.Command != "" {
		s += ": " + text.ShownCommand(p.Command)
	}
	if p.Memory != nil {
		s += ", with " + text.GiB(*p.Memory)
	}
	return s
}

// reportAttached prints the devices of an environment, which processes use those that are new, and who has reserved
// them: to stderr, so that no script reads it as output.
func (p *program) reportAttached(ctx context.Context, who *hostUser, others inUse, before, now []snapshot.DeviceIndex) {
	if len(now) > 0 {
		p.Warn("Attached " + others.named(now))
	}
	added := without(now, before)
	p.Warn(others.warnings(added)...)
	if len(added) > 0 {
		p.tellReserved(ctx, who, added)
	}
}

// named are GPUs with their models as far as those are known: GPUs 0, 1 (A100-SXM4-80GB).
func (u *inUse) named(list []snapshot.DeviceIndex) string {
	s := "GPU"
	if len(list) > 1 {
		s = "GPUs"
	}
	for i, index := range list {
		s += " " + index.String()
		model := gpus.ShortModel(u.gpu(index).Model)
		if last := i == len(list)-1; model != "" && (last || u.gpu(list[i+1]).Model != u.gpu(index).Model) {
			s += " (" + model + ")"
		}
		if i < len(list)-1 {
			s += ","
		}
	}
	return s
}

func without(list, other []snapshot.DeviceIndex) []snapshot.DeviceIndex {
	return slices.DeleteFunc(slices.Clone(list), func(i snapshot.DeviceIndex) bool { return slices.Contains(other, i) })
}
