package local

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"iter"
	"math"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/seed-3119e985/genv/snapshot"
	"github.com/seed-3119e985/genv/snapshot/container"
	"github.com/seed-3119e985/genv/snapshot/hardware"
	"github.com/seed-3119e985/genv/snapshot/nvidiasmi"
	"github.com/seed-3119e985/genv/snapshot/proc"
	"github.com/seed-3119e985/genv/snapshot/state"
	"github.com/seed-3119e985/genv/snapshot/text"
)

// observe reads the processes on devices. Hidden ones are an error for a Brief look, which can't report them.
func (c *Collector) observe(ctx context.Context, usage nvidiasmi.Usage, devices *deviceList, before processCache,
) (*observer, []observation, []string, error) {
	used, warnings := usage.Processes(devices.index)
	if warning := devices.hiddenWarning(); warning != "" {
		warnings = slices.Insert(warnings, 0, warning)
	}
	if usage.Time.Late {
		warnings = append(warnings, slowWarning(usage.Time.Began))
	}
	o := &observer{
		fs: c.Proc, ancestors: c.Proc.NewAncestorFinder(), brief: c.Brief, now: c.Now(),
		before: before, after: newProcessCache(), quotas: proc.Quotas{}, patience: accountsWithin,
	}
	read, errs := make([]observation, len(used)), make([]error, len(used))
	for _, i := range rand.Perm(len(used)) { // so that a later look reaches what quotas leave out
		read[i], errs[i] = o.observe(used[i].PID)
	}
	seen := make([]observation, 0, len(used))
	ended := startOf(usage.Time.Ended)
	for i, s := range read {
		u := &used[i]
		if errors.Is(errs[i], proc.ErrGone) || s.process.Start > ended {
			if _, known := before.details[u.PID]; !known && s.process.PID == 0 {
				o.unseen = append(o.unseen, *u)
			}
			continue // or it ended after nvidia-smi listed it
		}
		s.process.Usage, s.process.Instances = u.Usage, u.Instances
		seen = append(seen, s)
	}
	if len(seen) > 0 && c.hardware().Root && c.hardware().HasNodes() {
		o.prove(seen)
	}
	c.askAboutContainers(ctx, o, seen)
	if c.Brief && o.hidden != nil {
		return nil, nil, nil, fmt.Errorf("processes on GPUs are hidden from this user: %w", o.hidden)
	}
	return o, seen, warnings, nil
}

// startOf is the start time of a process that starts at a time; the highest one if unknown.
func startOf(at time.Time) snapshot.StartTime {
	now := proc.StartTimeNow()
	if at.IsZero() || now == 0 {
		return math.MaxUint64
	}
	return now.Before(time.Since(at)) + 1
}

// slowWarning changes only twice a minute, so that it isn't new in each cycle.
func slowWarning(at time.Time) string {
	const step = 30 * time.Second
	age := (time.Since(at) + step - 1).Truncate(step)
	return fmt.Sprintf("nvidia-smi is slow and has not answered in time: its list of processes is up to %s old", age)
}

func (o *observer) unseenWarnings() (warnings []string) {
	const maxUnseen = 8
	for i := range o.unseen[:min(len(o.unseen), maxUnseen)] {
		p := &o.unseen[i]
		warnings = append(warnings, fmt.Sprintf("process %d, which the driver lists on GPU %s, can't be seen: it "+
			"has just ended, or is in another PID namespace, or hidepid hides it",
			p.PID, text.JoinIndices(p.Indices())))
	}
	return warnings
}

// askAboutContainers completes processes in containers; the next snapshot asks again about unknown ones.
func (c *Collector) askAboutContainers(ctx context.Context, o *observer, seen []observation) {
	if c.Containers == nil {
		return
	}
	var members []container.ContainedProcess
	var of []*observation
	for i := range seen {
		if s := &seen[i]; !s.asked && s.process.UID != nil {
			members, of = append(members, s.member), append(of, s)
		}
	}
	if len(members) == 0 {
		return
	}
	for i, info := range c.Containers(ctx, members) {
		of[i].process.ContainerInfo = info
		if d, ok := o.after.details[members[i].PID]; ok && (info == nil || !info.Unknown) {
			d.info, d.asked = info, true
			o.after.details[members[i].PID] = d
		}
	}
}

// prove finds processes that have, or had, a device node open; only a finished search shows that there is none. It
// begins with processes of few files, equal ones in random order.
func (o *observer) prove(seen []observation) {
	order, files := rand.Perm(len(seen)), make([]int64, len(seen))
	for i := range seen {
		files[i] = o.fs.OpenFiles(seen[i].process.PID)
	}
	slices.SortStableFunc(order, func(a, b int) int { return cmp.Compare(files[a], files[b]) })
	for _, i := range order {
		p := &seen[i].process
		key := proc.ID{PID: p.PID, Start: p.Start}
		has := o.before.proved[key]
		if p.Start != 0 && !has {
			var err error
			has, err = o.quotas.Of(accountOf(p)).HasNode(o.fs, p.PID, hardware.NodeMajor)
			p.NodeMissing = !has && err == nil
		}
		if has {
			o.after.proved[key] = true
		}
	}
	o.findHolders(seen)
}

func accountOf(p *snapshot.Process) (a proc.QuotaKey) {
	if p.UID != nil {
		a.UID = *p.UID
	}
	if a.UID == 0 {
		a.Container = p.Container
	}
	return a
}

// findHolders finds, for processes without a node, an unlisted process of the same user with one, which may compute.
func (o *observer) findHolders(seen []observation) {
	listed, missing := make(map[snapshot.PID]bool), make(map[snapshot.UID][]*snapshot.Process)
	for i := range seen {
		p := &seen[i].process
		listed[p.PID] = true
		if a := accountOf(p); p.NodeMissing && a.UID != 0 { // root's daemons have nodes open
			missing[a.UID] = append(missing[a.UID], p)
		}
	}
	if len(missing) == 0 {
		return
	}
	pids, _ := o.fs.PIDs()
	for _, pid := range pids {
		uid, err := o.fs.FolderOwner(pid)
		if err != nil || listed[pid] || len(missing[uid]) == 0 {
			continue
		}
		if has, err := o.quotas.Of(proc.QuotaKey{UID: uid}).HasOpen(o.fs, pid, hardware.NodeMajor); has && err == nil {
			for _, p := range missing[uid] {
				p.NodeHolder = pid
			}
			delete(missing, uid)
		}
	}
}

// mayDraw says whether a process may be a desktop's: it has a node of /dev/dri open, or another process of its account
// draws. True also means unknown.
func (o *observer) mayDraw(p *snapshot.Process, drawing map[snapshot.PID]snapshot.ProcessType) bool {
	const majorDRI = 226 // the major number of the nodes in /dev/dri (Documentation/admin-guide/devices.txt)
	for pid := range drawing {
		if uid, err := o.fs.UID(pid); err != nil || p.UID == nil || uid == *p.UID {
			return true
		}
	}
	has, err := o.quotas.Of(accountOf(p)).HasNode(o.fs, p.PID, majorDRI)
	return has || err != nil
}

var (
	errNoStateFiles = errors.New("the state files can't be used")
	errNoAccount    = errors.New("the account of the process is unknown")
)

// resolve finds the environments in the state files, which were read after the processes. With readErr, or PIDs of
// another namespace, only the environ counts.
func (o *observer) resolve(seen []observation, files state.Files, readErr error) ([]snapshot.Process, []string) {
	if readErr != nil || files.LivenessUnknown {
		readErr, files = errNoStateFiles, state.Files{}
	}
	environments := snapshot.ByID(files.Environments)
	o.register = snapshot.NewRegister(files.Environments, nil, files.Answers)
	processes := make([]snapshot.Process, 0, len(seen))
	var warnings []string
	unread := 0
	for i := range seen {
		s := &seen[i]
		owner := o.assign(s, readErr)
		o.remember(s, &owner, environments)
		processes, warnings = append(processes, s.process), append(warnings, s.warnings...)
		switch {
		case owner.Unknown == nil:
		case errors.Is(owner.Unread, proc.ErrNotRead):
			unread++
		case owner.Unread != nil:
			warnings = append(warnings, owner.Unread.Error())
		default:
			warnings = append(warnings, fmt.Sprintf("whether process %d is in an environment is not known: %v",
				s.process.PID, owner.Unknown))
		}
	}
	if unread > 0 {
		warnings = append(warnings, fmt.Sprintf("the environments of %d processes are not known yet: "+
			"their users have many or slow processes, and the next looks read on", unread))
	}
	return processes, warnings
}

func (o *observer) assign(s *observation, readErr error) snapshot.Owner {
	p := &s.process
	var container snapshot.EnvID
	if p.ContainerInfo != nil {
		container = p.ContainerInfo.EID
	}
	owner := o.register.Owner(o.lineage(s, readErr), container)
	p.EID, p.Inherited = owner.EID, owner.Inherited
	p.EnvUnknown = owner.Unknown != nil
	p.EnvOverwritten = errors.Is(owner.Unknown, proc.ErrOverwritten)
	return owner
}

// remember stores an answer that the process may stop showing.
func (o *observer) remember(s *observation, owner *snapshot.Owner,
	environments map[snapshot.EnvID]*snapshot.Environment,
) {
	p, e := &s.process, environments[owner.EID]
	shown := owner.Basis == snapshot.ByClaim || owner.Basis == snapshot.ByAncestor && owner.Unread != nil
	if !shown || p.UID == nil || p.Start == 0 || e == nil || e.UID != *p.UID {
		return
	}
	if a := (snapshot.Answer{PID: p.PID, Start: p.Start, UID: *p.UID, EID: p.EID}); !o.register.Knows(a) {
		o.answers = append(o.answers, a)
	}
}

// lineage yields a process and its ancestors for Register.Owner; without the state files only the process.
func (o *observer) lineage(s *observation, readErr error) iter.Seq2[snapshot.Relative, error] {
	return func(yield func(snapshot.Relative, error) bool) {
		self := snapshot.Relative{PID: s.process.PID, Start: s.process.Start, UID: s.account, Claim: s.claim}
		if !yield(self, s.lineageErr) || readErr != nil && !yield(snapshot.Relative{}, readErr) || readErr != nil {
			return
		}
		for _, a := range s.ancestors {
			if o.register.Has(a.PID) && errors.Is(o.verify(a), proc.ErrGone) {
				continue
			}
			relative := snapshot.Relative{
				PID: a.PID, Start: a.Start,
				UID:   func() (snapshot.UID, error) { return o.accountOf(a) },
				Claim: func() (snapshot.EnvID, error) { return o.claimOf(a) },
			}
			if !yield(relative, nil) {
				return
			}
		}
	}
}

func (s *observation) account() (snapshot.UID, error) {
	if s.process.UID == nil {
		return 0, errNoAccount
	}
	return *s.process.UID, nil
}

func (s *observation) claim() (snapshot.EnvID, error) { return s.process.EID, s.environErr }

type readAncestor struct {
	at     time.Time
	uid    snapshot.UID
	asked  bool // for the claim
	claim  snapshot.EnvID
	unread error
}

// verify returns proc.ErrGone for an ended ancestor. The leader of a session, whose start time is unknown, keeps its
// PID as long as the session lasts.
func (o *observer) verify(a proc.ID) error {
	stat, err := o.fs.Stat(a.PID)
	if err == nil && a.Start != 0 && stat.Start != a.Start {
		return proc.ErrGone
	}
	return err
}

// ancestor reads an ancestor, again after detailsTTL.
func (o *observer) ancestor(a proc.ID) (readAncestor, error) {
	known, ok := o.after.ancestors[a]
	if ok {
		return known, nil
	}
	if known, ok = o.before.ancestors[a]; !ok || o.now.Sub(known.at) >= detailsTTL {
		uid, err := o.fs.Owner(a.PID)
		if err != nil {
			return readAncestor{}, err
		}
		known = readAncestor{at: o.now, uid: uid}
	}
	o.after.ancestors[a] = known
	return known, nil
}

func (o *observer) accountOf(a proc.ID) (snapshot.UID, error) {
	known, err := o.ancestor(a)
	return known.uid, err
}

func (o *observer) claimOf(a proc.ID) (snapshot.EnvID, error) {
	known, err := o.ancestor(a)
	if err != nil || known.asked {
		return known.claim, cmp.Or(err, known.unread)
	}
	h, err := o.fs.Open(a.PID)
	if err != nil {
		return "", err
	}
	defer h.Close()
	h.Quota = o.quotas.Of(proc.QuotaKey{UID: known.uid})
	eid, err := readClaim(h)
	if !errors.Is(err, proc.ErrNotRead) {
		known.asked, known.claim, known.unread = true, eid, err
		o.after.ancestors[a] = known
	}
	return eid, err
}

// dropped makes environments unknown that are in no file any more, although root saw them for that user: genv 1.4.3
// drops them with their shells, even with jobs, and any user can replace shared files. It returns a warning.
func dropped(s *snapshot.Snapshot, files *state.Files) []string {
	found := 0
	for i := range s.Processes {
		p := &s.Processes[i]
		if p.EID != "" && p.UID != nil && s.Environment(p.EID) == nil && files.WasRegistered(p.EID, *p.UID) {
			p.EID, p.EnvUnknown = "", true
			found++
		}
	}
	if found == 0 {
		return nil
	}
	return []string{fmt.Sprintf("%d processes are in environments that are no longer in the state files, so their "+
		"environments are unknown: genv 1.4.3 drops an environment with its shell, and every user can write "+
		"these files (docs/host.md says how root owns them)", found)}
}
