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
	privileged  bool // may see and change what belongs to other users
	noTerminate bool // only detach devices: GENV_TERMINATE_PROCESSES=0
	noMessages  bool // don't write to users' terminals: GENV_TELL=off
	getenv      func(string) string

	executor *enforcelocal.Executor
	record   *hostRecord
	names    userNames

	recordsPruned time.Time
	trial         recent[*snapshot.Trial] // see tryToEnd

	log      zerolog.Logger // for the watcher
	watching sync.Mutex
	watcher  *watch.Watcher // nil until Wait is called

	last    *snapshot.Snapshot // for a controller
	encoded []byte

	stateFolder    string // of the last snapshot; empty for unknown
	withoutService bool   // in the last snapshot, the state wasn't root's
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

// tryToEnd tries once a minute what ending a process and detaching a GPU need: obstacles may come and go.
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

// Wait is an agent.Answers.Event. Watching starts at the first call, and costs nothing before.
func (h *host) Wait(ctx context.Context) error {
	h.watching.Lock()
	if h.watcher == nil {
		h.watcher = h.Watch(h.getenv, h.log)
	}
	watcher := h.watcher
	h.watching.Unlock()
	return watcher.Wait(ctx)
}

// look is snapshot, and rearms Wait.
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

// nameStarter names the user who provably started a process's container. The process counts for that user.
func (h *host) nameStarter(p *snapshot.Process) {
	if p.ContainerInfo == nil || p.UID == nil {
		return
	}
	p.UserUnknown = false // its own uid isn't its user's
	if p.ContainerInfo.UID == nil {
		return
	}
	info := *p.ContainerInfo // the next snapshot shares the original
	info.User, p.UserUnknown = h.names.of(*info.UID)
	p.ContainerInfo = &info
}

// pruneRecords removes, every 10 minutes, records of containers that ended without a hook, for hosts without root's
// service. Leftovers keep no environment alive, and prove nothing.
func (h *host) pruneRecords() {
	now := h.record.now()
	if age := now.Sub(h.recordsPruned); os.Geteuid() != 0 || age >= 0 && age < 10*time.Minute {
		return
	}
	h.recordsPruned = now
	_ = container.PruneRecords(disk.RunDir(h.getenv), h.StartOf) // the next call tries again
}

// pruneRestarts asks engines for at most 10 s whether a container exists.
func (h *host) pruneRestarts(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	notes := grant.RestartNotes{Dir: disk.RootDir(h.getenv), Now: h.Machine.Now}
	return notes.Prune(func(note grant.RestartNote) bool {
		if note.Runtime == "" || ctx.Err() != nil { // unknown: any engine may have it
			return false
		}
		_, err := container.Engines{}.Inspect(ctx, proc.Cgroup{ID: note.ID, Runtime: note.Runtime})
		return errors.Is(err, container.ErrNotFound) && ctx.Err() == nil
	})
}

const namesWithin = 3 * time.Second // in a cycle, for all names

// userNames caches names of users. A directory service may be slow, so each name is asked for only once in a session.
type userNames struct {
	now      func() time.Time
	accounts nss.Passwd
	known    map[snapshot.UID]snapshot.Username // empty for none
	asked    map[snapshot.UID]time.Time
}

func (n *userNames) of(uid snapshot.UID) (name snapshot.Username, unknown bool) {
	name, known := n.known[uid]
	return name, !known
}

// ask looks up the owners of processes. After a failure the name stays unknown until the next call. A user without a
// name is looked up again after a minute: a directory service that is down may not know the user.
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

// lookUp returns "" for no name. After an error the name is unknown.
func (n *userNames) lookUp(ctx context.Context, uid snapshot.UID) (snapshot.Username, error) {
	ctx, cancel := context.WithTimeout(ctx, 2*time.Second)
	defer cancel()
	account, err := n.accounts.WithUID(ctx, uid)
	if errors.Is(err, nss.ErrNoAccount) {
		err = nil
	}
	return account.Username(), err
}
