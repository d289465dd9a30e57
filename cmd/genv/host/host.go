package host

import (
	"context"

	"github.com/urfave/cli/v2"

	"github.com/seed-3119e985/genv/cmd/genv/command"
	"github.com/seed-3119e985/genv/cmd/genv/localhost"
	"github.com/seed-3119e985/genv/enforce"
	enforcelocal "github.com/seed-3119e985/genv/enforce/local"
	"github.com/seed-3119e985/genv/remote/agent"
)

// program is genv as its commands see it.
type program struct{ command.Program }

// Commands are what root runs on a GPU host.
func Commands(with command.Program) []*cli.Command {
	p := &program{with}
	return []*cli.Command{p.enforceCommand(), p.usageCommand()}
}

// host is this machine, for enforcement.
type host struct {
	*localhost.Host
	noTerminate bool // only detach devices: GENV_TERMINATE_PROCESSES=0
	noMessages  bool // don't write to users' terminals: GENV_TELL=off

	executor *enforcelocal.Executor
	record   *hostRecord
	names    userNames // of those who own processes
}

func (p *program) openHost() *host {
	here := localhost.Open(p.Program)
	return &host{
		Host:        here,
		noTerminate: p.Getenv("GENV_TERMINATE_PROCESSES") == "0",
		noMessages:  p.Getenv("GENV_TELL") == "off",
		executor:    enforcelocal.New(here.Machine, here.Store, enforcelocal.ExecutorOptions{Grace: executeGrace}),
		record:      &hostRecord{path: p.recordPath(), now: p.Now, by: p.Getenv("SUDO_USER"), proc: here.Machine.Proc},
		names:       userNames{now: p.Now},
	}
}

// execution carries out a report for a controller.
func (h *host) execution(ctx context.Context, report enforce.Report) agent.Execution {
	var done agent.Execution
	done.Outcomes, done.Warnings = h.carryOut(ctx, report, func(line string) { done.Lines = append(done.Lines, line) })
	return done
}

// carryOut carries out a report, and calls say with a line for each action. The
// warnings are about the audit log of this host.
func (h *host) carryOut(ctx context.Context, report enforce.Report, say func(string)) (_ []enforce.Outcome, warnings []string) {
	refused := []enforce.Termination(nil)
	if h.noTerminate {
		refused, report.Terminate = report.Terminate, nil
	}
	recorded := h.record.begin(report, refused)
	outcomes := h.executor.OnAction(say).Execute(ctx, report)
	for _, t := range refused {
		outcomes = append(outcomes, enforce.Outcome{
			PID: t.Process.PID, EID: t.Process.EID, Status: enforce.StatusRefused, Reason: "GENV_TERMINATE_PROCESSES=0 on this host",
		})
	}
	recorded.end(outcomes)
	return outcomes, recorded.warnings
}
