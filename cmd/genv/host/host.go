package host

import (
	"context"

	"github.com/seed-3119e985/genv/cmd/genv/command"
	"github.com/seed-3119e985/genv/cmd/genv/localhost"
	"github.com/seed-3119e985/genv/enforce"
	enforcelocal "github.com/seed-3119e985/genv/enforce/local"
	"github.com/urfave/cli/v2"
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
	// spare carries out detachments only: GENV_TERMINATE_PROCESSES=0 says so.
	spare bool
	// silent tells users nothing on their terminals: GENV_TELL=off says so.
	silent   bool
	executor *enforcelocal.Executor
	say      func(string) // gets its lines
	record   *hostRecord
	names    userNames // of those who own processes
}

func (p *program) openHost() (*host, error) {
	here, err := localhost.Open(p.Program)
	if err != nil {
		return nil, err
	}
	h := &host{Host: here, spare: p.Getenv("GENV_TERMINATE_PROCESSES") == "0", silent: p.Getenv("GENV_TELL") == "off"}
	h.names.now = p.Now
	h.record = p.openHostRecord(h.Machine.Proc)
	h.executor = enforcelocal.New(h.Machine, h.Store, enforcelocal.Options{Grace: executeGrace, Say: func(line string) { h.say(line) }})
	return h, nil
}

// carryOut does what a report says, and says a line for each thing done. One
// report is carried out at a time.
func (h *host) carryOut(ctx context.Context, report enforce.Report, say func(string)) []enforce.Outcome {
	spared := []enforce.Termination(nil)
	if h.spare {
		spared, report.Terminate = report.Terminate, nil
	}
	h.say = say
	h.record.begin(report, spared)
	outcomes := h.executor.Execute(ctx, report)
	for _, t := range spared {
		outcomes = append(outcomes, enforce.Outcome{
			PID: t.Process.PID, EID: t.Process.EID, Status: enforce.StatusRefused, Reason: "GENV_TERMINATE_PROCESSES=0 on this host",
		})
	}
	h.record.end(outcomes)
	return outcomes
}
