package host

import (
	"context"
	"errors"
	"os"
	"slices"
	"sync"
	"time"

	"github.com/rs/zerolog"

	"github.com/seed-3119e985/genv/cmd/genv/localhost"
	"github.com/seed-3119e985/genv/enforce/audit"
	enforcelocal "github.com/seed-3119e985/genv/enforce/local"
	"github.com/seed-3119e985/genv/enforce/local/ending"
	"github.com/seed-3119e985/genv/enforce/order"
	"github.com/seed-3119e985/genv/snapshot"
	"github.com/seed-3119e985/genv/snapshot/container"
	"github.com/seed-3119e985/genv/snapshot/container/grant"
	"github.com/seed-3119e985/genv/snapshot/local"
	"github.com/seed-3119e985/genv/snapshot/nss"
	"github.com/seed-3119e985/genv/snapshot/proc"
	"github.com/seed-3119e985/genv/snapshot/state/disk"
	"github.com/seed-3119e985/genv/snapshot/state/service"
	"github.com/seed-3119e985/genv/snapshot/watch"
)

type host struct {
	*localhost.Host
	privileged  bool // it may see and change what belongs to other users
	noTerminate bool // only detach devices: GENV_TERMINATE_PROCESSES=0
	noMessages  bool // don't write to users' terminals: GENV_TELL=off
	getenv      func(string) string

	executor *enforcelocal.Executor
	record   *hostRecord
	names    userNames // of the owners of processes

	recordsPruned time.Time
	trial         recent[*snapshot.Trial] // of what acting needs, besides nvidia-smi

	log      zerolog.Logger // of what is watched
	watching sync.Mutex
	watcher  *watch.Watcher // nil until Wait is called

	last    *snapshot.Snapshot // for a controller
	encoded []byte

	stateFolder    string // of the last snapshot; empty if it is unknown
	withoutService bool   // the last snapshot's state files are not root's
}

func (h *host) snapshot(ctx context.Context, age local.Age) (*snapshot.Snapshot, error) {
	h.pruneRecords()
	s, err := h.Machine.SnapshotWithin(ctx, age)
	if err != nil {
		return nil, err
	}
	h.stateFolder, h.withoutService = s.StateFolder, s.Service != nil && !*s.Service
	if s.Service != nil && *s.Service {
		s.Waits = service.Waits(disk.RunDir(h.getenv), h.mayRun)
		if asked, err := service.AskedNote.Read(disk.RunDir(h.getenv)); err == nil {
			s.Asked = &asked
		}
	}
	h.names.ask(ctx, s)
	for i := range s.Processes {
		p := &s.Processes[i]
		p.Protected = h.executor.ProtectedName(p)
		switch {
		case h.SharedAccount != nil:
			h.SharedAccount(p)
		case p.UID != nil:
			p.Username, p.UserUnknown = h.names.of(*p.UID)
		}
		h.nameStarter(p)
	}
	return s, nil
}

func (h *host) mayRun(pid snapshot.PID, start snapshot.StartTime) bool {
	alive, err := h.Machine.Proc.Alive(pid, start)
	return alive || err != nil
}

func (h *host) forController(s *snapshot.Snapshot, err error) (*snapshot.Snapshot, error) {
	if err == nil && h.privileged && h.SharedAccount == nil {
		s.Trial = h.tryToEnd()
		s.Warnings = slices.Concat(s.Warnings, s.Trial.Warnings())
	}
	if err == nil && len(s.Processes) > 0 && h.Machine.Proc.Hiding().On {
		for i := range s.Processes {
			s.Processes[i].HideCommand()
		}
	}
	return s, err
}

// tryToEnd tries what ending a process and detaching a GPU need, once a minute: what prevents it may come and go.
func (h *host) tryToEnd() *snapshot.Trial {
	t, _ := h.trial.get(time.Minute, func() (*snapshot.Trial, error) {
		t := h.executor.Try()
		if err := h.Store.TryWrite(); t != nil && err != nil {
			t.State = err.Error()
		}
		return t, nil
	})
	return t
}

// try is tryToEnd, and also asks nvidia-smi.
func (h *host) try(ctx context.Context) *snapshot.Trial {
	t := h.tryToEnd().Bounded()
	if t == nil || t.Unable != "" {
		return t
	}
	if _, err := h.Machine.ListDevices(ctx); err != nil && ctx.Err() == nil {
		t.Unable = err.Error()
	}
	return t
}

func (h *host) carryOut(
	ctx context.Context, o order.Order, asker ending.Authority, say func(string),
) (_ []order.Outcome, warnings []string) {
	var refused []order.Termination
	if h.noTerminate {
		refused, o.Terminate = o.Terminate, nil
	}
	items := h.record.items(o, refused)
	warnings = h.record.append(items)
	outcomes := h.executor.As(asker, say, func(text string) { warnings = append(warnings, text) }).Execute(ctx, o)
	for _, t := range refused {
		outcomes = append(outcomes, order.Outcome{
			PID: t.Process.PID, EID: t.Process.EID, Status: order.StatusRefused,
			Reason: "GENV_TERMINATE_PROCESSES=0 on this host",
		})
	}
	return outcomes, append(warnings, h.record.append(audit.OutcomeRecords(items, outcomes))...)
}

// Wait is for agent.Answers. The machine is watched from the first call on, so that it costs nothing otherwise.
func (h *host) Wait(ctx context.Context) error {
	h.watching.Lock()
	if h.watcher == nil {
		h.watcher = h.Watch(h.getenv, h.log)
	}
	watcher := h.watcher
	h.watching.Unlock()
	return watcher.Wait(ctx)
}

// look is snapshot, after which a Wait begins again.
func (h *host) look(ctx context.Context, age local.Age) (s *snapshot.Snapshot, err error) {
	h.watching.Lock()
	watcher := h.watcher
	h.watching.Unlock()
	if watcher != nil {
		done := watcher.Look()
		defer func() { done(s) }()
	}
	return h.snapshot(ctx, age)
}

func (h *host) stopWatching() {
	h.watching.Lock()
	defer h.watching.Unlock()
	if h.watcher != nil {
		h.watcher.Close()
	}
}

// nameStarter names the user who is proved to have started a process's container: the process counts for that user.
func (h *host) nameStarter(p *snapshot.Process) {
	if p.ContainerInfo == nil || p.UID == nil {
		return
	}
	p.UserUnknown = false // its own uid's name says nothing about its user
	if p.ContainerInfo.UID == nil {
		return
	}
	info := *p.ContainerInfo // the other one is kept for the next snapshot
	info.User, p.UserUnknown = h.names.of(*info.UID)
	p.ContainerInfo = &info
}

// pruneRecords removes records of containers that ended without a hook, every 10 minutes, for hosts without root's
// service. What is left keeps no environment alive, and proves nothing.
func (h *host) pruneRecords() {
	now := h.record.now()
	if age := now.Sub(h.recordsPruned); os.Geteuid() != 0 || age >= 0 && age < 10*time.Minute {
		return
	}
	h.recordsPruned = now
	_ = container.PruneRecords(disk.RunDir(h.getenv), h.StartOf) // the next look tries again
}

// pruneRestarts forgets the users of containers that have been removed. Engines are asked for 10 s at most.
func (h *host) pruneRestarts(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	notes := grant.RestartNotes{Dir: disk.RootDir(h.getenv), Now: h.Machine.Now}
	return notes.Prune(func(note grant.RestartNote) bool {
		if note.Runtime == "" || ctx.Err() != nil { // any engine may have it
			return false
		}
		_, err := container.Engines{}.Inspect(ctx, proc.Cgroup{ID: note.ID, Runtime: note.Runtime})
		return errors.Is(err, container.ErrNotFound) && ctx.Err() == nil
	})
}

const namesWithin = 3 * time.Second // at most in a cycle, for all names

// userNames are the names of users. A directory service may be slow, so each is asked for only once in a session.
type userNames struct {
	now      func() time.Time
	accounts nss.Passwd
	known    map[snapshot.UID]snapshot.Username // empty for none
	asked    map[snapshot.UID]time.Time         // when
}

func (n *userNames) of(uid snapshot.UID) (name snapshot.Username, unknown bool) {
	name, known := n.known[uid]
	return name, !known
}

// ask asks for the names of the owners of processes. What fails stays unknown until the next call. A user without a
// name is asked for again after a minute: a directory service that is down may seem not to know the user.
func (n *userNames) ask(ctx context.Context, s *snapshot.Snapshot) {
	ctx, cancel := context.WithTimeout(ctx, namesWithin)
	defer cancel()
	if n.known == nil {
		n.known, n.asked = make(map[snapshot.UID]snapshot.Username), make(map[snapshot.UID]time.Time)
	}
	asked := make(map[snapshot.UID]bool)
	uids := make([]*snapshot.UID, 0, len(s.Processes))
	for i := range s.Processes {
		uids = append(uids, s.Processes[i].UID)
		if info := s.Processes[i].ContainerInfo; info != nil {
			uids = append(uids, info.UID)
		}
	}
	for _, uid := range uids {
		if uid == nil || asked[*uid] {
			continue
		}
		name, known := n.known[*uid]
		if known && (name != "" || n.now().Sub(n.asked[*uid]) < time.Minute) {
			continue
		}
		asked[*uid] = true
		delete(n.known, *uid)
		if ctx.Err() != nil {
			continue
		}
		if name, err := n.lookUp(ctx, *uid); err == nil {
			n.known[*uid], n.asked[*uid] = name, n.now()
		}
	}
}

// lookUp is the name of a user, or "" for none. After an error it is unknown.
func (n *userNames) lookUp(ctx context.Context, uid snapshot.UID) (snapshot.Username, error) {
	ctx, cancel := context.WithTimeout(ctx, 2*time.Second)
	defer cancel()
	account, err := n.accounts.WithUID(ctx, uid)
	if errors.Is(err, nss.ErrNoAccount) {
		err = nil
	}
	return account.Username(), err
}
