package user

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"time"

	"github.com/urfave/cli/v2"

	"github.com/seed-3119e985/genv/cmd/genv/command"
	"github.com/seed-3119e985/genv/cmd/genv/environment"
	"github.com/seed-3119e985/genv/cmd/genv/shell"
	"github.com/seed-3119e985/genv/snapshot"
	"github.com/seed-3119e985/genv/snapshot/gpus"
	"github.com/seed-3119e985/genv/snapshot/nvidiasmi"
	"github.com/seed-3119e985/genv/snapshot/state/change"
	"github.com/seed-3119e985/genv/snapshot/state/system"
	"github.com/seed-3119e985/genv/snapshot/text"
)

type attachOptions struct {
	environment.SettingFlags
	waitOptions
	count, index, mig string
	config, refresh   bool
}

func (p *userCommands) attachCommand() *cli.Command {
	o := new(attachOptions)
	return &cli.Command{
		Name: "attach", Usage: "attach GPUs to this environment: as many as are configured, or one",
		Flags: append(o.flags(), o.waitFlag(),
			command.Bool(&o.config, "config", "attach as many as are configured, and none if no number is"),
			command.Bool(&o.refresh, "refresh",
				"attach nothing; update this shell after another terminal attached or detached GPUs")),
		Action: p.outsideContainers(func(c *cli.Context) error { return p.attach(c, o) }),
	}
}

func (o *attachOptions) flags() []cli.Flag {
	return []cli.Flag{
		command.String(&o.count, "count", "attach GPUs until there are `N` in all"),
		command.String(&o.index, "index", "attach these GPUs: `INDEX`, or several with commas"),
		command.String(&o.mig, "mig", "attach this MIG `INSTANCE`, or several with commas: a UUID, "+
			"or a profile such as 1g.10gb for any free one"),
		o.OverSubscribeFlag(),
	}
}

// request also counts which of --count, --index and --mig are given; they exclude each other.
func (o *attachOptions) request(c *cli.Context, getenv func(string) string) (r change.Attach, given int, err error) {
	r.OverSubscribe, r.Configured = o.OverSubscribe(getenv), o.config
	for _, name := range []string{"count", "index", "mig"} {
		if c.IsSet(name) {
			given++
		}
	}
	if c.IsSet("count") {
		r.Count, err = strconv.Atoi(o.count)
		if err != nil || r.Count < 1 {
			return r, given, command.WrongFlag("count", " %q: write how many GPUs you need in all, 1 or more", o.count)
		}
	}
	if r.Indices, err = readIndices(c, o.index); err == nil && given > 1 {
		err = command.WrongFlag("count", ", --index and --mig exclude each other")
	}
	return r, given, err
}

func (p *userCommands) attach(c *cli.Context, o *attachOptions) error {
	request, given, err := o.request(c, p.Getenv)
	who := p.person()
	switch {
	case err != nil:
		return err
	case o.refresh && (given > 0 || o.config):
		return command.WrongFlag("refresh", " attaches nothing: leave out --config, --count, --index and --mig")
	case o.refresh:
		_, err := p.inShell(c.Context, who, who.look)
		return err
	case o.config && given > 0:
		return command.WrongFlag("config", " attaches as many as are configured: leave out --count, --index and --mig")
	}
	var others inUse
	result, err := p.inShell(c.Context, who, func(_ context.Context, eid snapshot.EnvID) (r change.Result, err error) {
		request.EID = eid
		if request.Instances, err = who.instances(c, o.mig, eid); err != nil {
			return r, err
		}
		r, others, err = o.change(c, p, who, change.Change{Attach: &request})
		return r, who.ended(eid, err)
	})
	switch n := len(result.Now); {
	case err != nil:
		return err
	case n > 0 && !request.Configured && request.Instances == nil && slices.Equal(result.Before, result.Now):
		p.Warnf("You have %d already, %s; --count %d for one more", n, others.named(result.Now), n+1)
	default:
		p.reportAttached(c.Context, who, others, result.Before, result.Now)
	}
	return nil
}

func (w *hostUser) look(ctx context.Context, eid snapshot.EnvID) (change.Result, error) {
	files, _, err := w.here(ctx)
	if err != nil {
		return change.Result{}, err
	}
	renumbered := func(d snapshot.Device) bool { return d.Unidentified && d.Attachment(eid) != nil }
	if slices.ContainsFunc(files.Devices, renumbered) { // tells root's genv that this shell knows the present indices
		refresh := change.Attach{Refresh: true}
		refresh.EID = eid
		return w.changeIn(ctx, eid, change.Change{Attach: &refresh})
	}
	return change.Current(&files, eid), nil
}

// inShell changes the environment of this shell, then the shell; after an error neither. A script has no shell to
// change, and a shell of 1.4.3 gets its change by `genv shell --reattach`.
func (p *userCommands) inShell(
	ctx context.Context, who *hostUser, by func(context.Context, snapshot.EnvID) (change.Result, error),
) (change.Result, error) {
	eid, err := who.active(ctx)
	if err != nil {
		return change.Result{}, err
	}
	caller, err := p.caller(who)
	script := errors.Is(err, shell.ErrNotInitialised)
	if err != nil && !script {
		return change.Result{}, err
	}
	result, err := by(ctx, eid)
	if err != nil {
		return result, err
	}
	active := p.visible(who, &result)
	visible := p.Getenv("CUDA_VISIBLE_DEVICES")
	switch {
	case !script:
		err = caller.Apply(shell.Update(active))
	case !slices.Equal(result.Before, result.Now) && visible != active.VisibleDevices() &&
		!(shell.Shell143{Environ: p.Getenv}).Active():
		p.Warnf(`CUDA_VISIBLE_DEVICES of this shell is still %q: run eval "$(genv shell --reattach)"`, visible)
	}
	return result, err
}

func (p *userCommands) detachCommand() *cli.Command {
	index := ""
	return &cli.Command{
		Name: "detach", Usage: "detach GPUs from this environment, by default all",
		Flags:  []cli.Flag{command.String(&index, "index", "detach only these GPUs: `INDEX`, or several with commas")},
		Action: p.outsideContainers(func(c *cli.Context) error { return p.detach(c, index) }),
	}
}

func (p *userCommands) detach(c *cli.Context, index string) error {
	list, err := readIndices(c, index)
	if err != nil {
		return err
	}
	who := p.person()
	result, err := p.inShell(c.Context, who, func(ctx context.Context, eid snapshot.EnvID) (change.Result, error) {
		return who.changeIn(ctx, eid, change.Change{Detach: &change.Detach{EID: eid, Indices: list}})
	})
	if err != nil {
		return err
	}
	var models inUse // a snapshot would take too long
	if detached := without(result.Before, result.Now); len(detached) > 0 {
		p.Warn("Detached " + models.named(detached))
	}
	if others := without(list, result.Before); len(others) > 0 {
		p.Warn("Not attached: " + models.named(others))
	}
	return nil
}

// Limits for finding out which GPUs are in use: the timeout, and when the user is told to wait.
const (
	inUseTimeout = 10 * time.Second
	inUseSlow    = 2 * time.Second
)

// inUse is the state of the GPUs, without the caller's processes.
type inUse struct {
	gpus   []gpus.GPU
	hidden []snapshot.DeviceIndex // by a guard
	failed string                 // why the snapshot failed; empty if it did not
	only   []snapshot.DeviceIndex // may be attached after a timeout; nil for all
}

// inUseByOthers may run nvidia-smi: don't call it while holding the lock.
func (p *userCommands) inUseByOthers(ctx context.Context, w *hostUser, eid snapshot.EnvID, uid snapshot.UID) inUse {
	within, cancel := context.WithTimeout(ctx, inUseTimeout)
	defer cancel()
	look := w.ownLook
	if !w.Store.MayWrite() {
		look = w.rootsLook
	}
	told := make(chan struct{})
	slow := time.AfterFunc(inUseSlow, func() {
		defer close(told)
		p.Warnf("finding out which GPUs are in use takes long: it may take up to %s",
			inUseTimeout+nvidiasmi.DefaultTimeout) // a change may ask nvidia-smi again
	})
	seen, err := look(within)
	if !slow.Stop() {
		<-told // Warn isn't safe for concurrent use
	}
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

// unseen is root's last look, after a failed one. After a timeout only GPUs that were free then may be attached.
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

// ownLook adds root's last look at GPUs that a guard hides.
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

func (w *hostUser) rootsLook(ctx context.Context) (seen inUse, err error) {
	document, err := w.Service.Look(ctx, "gpus")
	if err == nil {
		if err = json.Unmarshal(document, &seen.gpus); err != nil {
			err = fmt.Errorf("the service gave an answer that is not understood: %w", err)
		}
	}
	return seen, err
}

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
	const most = 8
	if more := len(lines) - most; more > 0 {
		lines = append(lines[:most], fmt.Sprintf("Warning: %d more processes use them; see `genv gpus`", more))
	}
	byWhy := func(a, b [2]string) int { return cmp.Compare(a[0], b[0]) }
	for _, d := range slices.SortedFunc(maps.Keys(doubtful), byWhy) {
		lines = append(lines, fmt.Sprintf(d[1], text.JoinIndices(doubtful[d]), d[0]))
	}
	return lines
}

// gpu is in an unknown state if it wasn't seen.
func (u *inUse) gpu(index snapshot.DeviceIndex) *gpus.GPU {
	seen := snapshot.Find(u.gpus, func(g *gpus.GPU) bool { return g.Index == index })
	return cmp.Or(seen, &gpus.GPU{Index: index, State: gpus.Unknown})
}

// doubt is why a GPU may not be free or healthy, and a format for the GPUs and why; empty if there is no doubt.
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

// reportAttached prints to stderr, which no script parses.
func (p *userCommands) reportAttached(
	ctx context.Context, who *hostUser, others inUse, before, now []snapshot.DeviceIndex,
) {
	if len(now) > 0 {
		p.Warn("Attached " + others.named(now))
	}
	added := without(now, before)
	p.Warn(others.warnings(added)...)
	if len(added) > 0 {
		p.tellReserved(ctx, who, added)
	}
}

// named is as in "GPUs 0, 1 (A100-SXM4-80GB)"; without unknown models.
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
