// Package host has the commands that root runs on a GPU host: `genv usage` for controllers,
// `genv enforce`, `genv monitor`, `genv doctor`, `genv gpus`, the service `genv host`, and
// `genv guard`; and what container engines call there: a runtime in place of runc, and hooks.
package host

import (
	"context"
	"os"
	"slices"
	"sync"
	"time"

	"github.com/rs/zerolog"

	"github.com/urfave/cli/v2"

	"github.com/seed-3119e985/genv/cmd/genv/command"
	"github.com/seed-3119e985/genv/cmd/genv/guard"
	"github.com/seed-3119e985/genv/cmd/genv/localhost"
	"github.com/seed-3119e985/genv/enforce/audit"
	enforcelocal "github.com/seed-3119e985/genv/enforce/local"
	"github.com/seed-3119e985/genv/enforce/local/asked"
	"github.com/seed-3119e985/genv/enforce/order"
	"github.com/seed-3119e985/genv/remote/agent"
	"github.com/seed-3119e985/genv/snapshot"
	"github.com/seed-3119e985/genv/snapshot/local"
	"github.com/seed-3119e985/genv/snapshot/state/disk"
	"github.com/seed-3119e985/genv/snapshot/state/service"
	"github.com/seed-3119e985/genv/snapshot/watch"
)

// program is genv as its commands see it.
type program struct{ command.Program }

// Commands are what root runs on a GPU host.
func Commands(with command.Program) []*cli.Command {
	p := &program{with}
	return []*cli.Command{
		guard.Command(with), p.doctorCommand(), p.enforceCommand(), p.gpusCommand(), p.serviceCommand(),
		p.monitorCommand(), p.usageCommand(),
	}
}

// host is this machine, for enforcement.
type host struct {
	*localhost.Host
	privileged  bool // it sees and may change what belongs to other users
	noTerminate bool // only detach devices: GENV_TERMINATE_PROCESSES=0
	noMessages  bool // don't write to users' terminals: GENV_TELL=off
	getenv      func(string) string

	executor *enforcelocal.Executor
	record   *hostRecord
	names    userNames // of those who own processes

	recordsPruned time.Time
	trial         recent[*snapshot.Trial] // of what acting needs, besides nvidia-smi

	log      zerolog.Logger // of what is watched
	watching sync.Mutex
	watcher  *watch.Watcher // nil until somebody waits

	// Of the last snapshot:
	stateFolder    string // empty if it is unknown
	withoutService bool   // the state files are not root's
}

// executeGrace is how long processes have to end if the order doesn't say it. It is well below a controller's timeout
// for a command, so that the outcome can be reported.
const executeGrace = 10 * time.Second

func (p *program) openHost() *host {
	here := localhost.Open(p.Program)
	options := enforcelocal.ExecutorOptions{
		Grace: executeGrace, UID: snapshot.UID(os.Geteuid()),
		Asked: p.askedList(here.Machine.Proc), Proc: here.Machine.Proc,
	}
	if p.SharedAccount != nil {
		options.UID = 0
	}
	if os.Geteuid() == 0 {
		source := containers(p.Getenv, here.Machine.Proc)
		here.Machine.Containers, options.Containers = source, source
	}
	return &host{
		Host:        here,
		privileged:  options.UID == 0,
		noTerminate: p.Getenv("GENV_TERMINATE_PROCESSES") == "0",
		noMessages:  p.Getenv("GENV_TELL") == "off",
		getenv:      p.Getenv,
		executor:    enforcelocal.New(here.Machine, here.Store, options),
		record: &hostRecord{
			path: localhost.HostLog(p.Getenv), now: p.Now, by: p.Getenv("SUDO_USER"), proc: here.Machine.Proc,
		},
		names: userNames{now: p.Now},
	}
}

// snapshot is this machine's snapshot, with what enforcement needs to know about its
// processes and its clock. The answers of nvidia-smi are as old as age allows.
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

// mayRun says whether a process that began at a time isn't known to have ended.
func (h *host) mayRun(pid snapshot.PID, start snapshot.StartTime) bool {
	alive, err := h.Machine.Proc.Alive(pid, start)
	return alive || err != nil
}

// forController is a snapshot for a controller, which shows it to others: what /proc hides from them is
// marked as private.
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

// triedFor is how old a trial may be: what stands in the way may come and go.
const triedFor = time.Minute

// tryToEnd tries what ending a process and detaching a GPU need.
func (h *host) tryToEnd() *snapshot.Trial {
	t, _ := h.trial.get(triedFor, func() (*snapshot.Trial, error) {
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

func (h *host) execution(ctx context.Context, o order.Order, asker asked.Authority) agent.Execution {
	var done agent.Execution
	done.Outcomes, done.Warnings = h.carryOut(ctx, o, asker,
		func(line string) { done.Lines = append(done.Lines, line) })
	return done
}

// carryOut carries out an order, and calls say with a line for each action. The
// warnings are about the audit log of this host, and its list of processes that were asked.
func (h *host) carryOut(
	ctx context.Context, o order.Order, asker asked.Authority, say func(string),
) (_ []order.Outcome, warnings []string) {
	refused := []order.Termination(nil)
	if h.noTerminate {
		refused, o.Terminate = o.Terminate, nil
	}
	items := h.record.items(o, refused)
	warnings = h.record.append(items)
	executor := h.executor.As(asker).OnAction(say).OnWarning(func(text string) { warnings = append(warnings, text) })
	outcomes := executor.Execute(ctx, o)
	for _, t := range refused {
		outcomes = append(outcomes, order.Outcome{
			PID: t.Process.PID, EID: t.Process.EID, Status: order.StatusRefused,
			Reason: "GENV_TERMINATE_PROCESSES=0 on this host",
		})
	}
	return outcomes, append(warnings, h.record.append(audit.OutcomeRecords(items, outcomes))...)
}
