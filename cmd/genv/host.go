package main

import (
	"context"
	"os"

	"github.com/seed-3119e985/genv/enforce"
	enforcelocal "github.com/seed-3119e985/genv/enforce/local"
	"github.com/seed-3119e985/genv/snapshot/local"
	"github.com/seed-3119e985/genv/snapshot/state"
)

// host is this machine as a GPU host.
type host struct {
	machine *local.Machine
	store   *state.Store
	// spare carries out detachments only: GENV_TERMINATE_PROCESSES=0 says so.
	spare bool
	// silent tells users nothing on their terminals: GENV_TELL=off says so.
	silent bool
	// oneAccount: see openHost.
	oneAccount bool

	executor *enforcelocal.Executor
	say      func(string) // gets its lines
	record   *hostRecord
	names    userNames // of those who own processes
}

func (p *program) openHost() (*host, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	options := state.Options{Now: p.now, Root: state.Root(p.getenv), Username: state.Users{}.Username}
	// One account plays several users, as in the demo: envs.json is believed, and
	// the uids of processes aren't reported. sudo lets no such variable through.
	oneAccount := p.getenv("GENV_NAMES") == "books"
	if oneAccount {
		options.Username = nil
	}
	store := state.New(state.Dir(p.getenv), options)
	h := &host{
		machine: &local.Machine{SMI: &lateSMI{path: p.getenv("PATH"), self: self, lock: smiLock(p.getenv, os.Geteuid())}, Books: store, Now: p.now},
		store:   store,
		spare:   p.getenv("GENV_TERMINATE_PROCESSES") == "0",
		silent:  p.getenv("GENV_TELL") == "off",

		oneAccount: oneAccount,
	}
	h.names.now = p.now
	h.record = p.openHostRecord(h.machine.Proc)
	h.executor = enforcelocal.New(h.machine, h.store, enforcelocal.Options{Grace: executeGrace, Say: func(line string) { h.say(line) }})
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
