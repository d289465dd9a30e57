// Package top is the live view of a fleet on a terminal: `genv remote top`.
//
//	source := …                                    // a controller's socket, or looks of this program
//	err := top.Run(ctx, top.Options{Source: source, In: os.Stdin, Out: os.Stdout, Now: time.Now})
//
// A Model has what is shown and which row is selected. Its Update takes keys and changes of the fleet, and its View
// draws the rows that fit on the screen; both are free of I/O. A row is selected by its identity, such as a process's
// host, PID and start time. When it is gone no other row takes its place until a key moves the selection.
//
// Plain prints the same as lines, for screen readers and logs.
//
// The package asks no host anything, and changes nothing itself: actions are requests to
// the controller, which decides on them.
package top

import (
	"context"
	"io"
	"slices"
	"time"

	tea "charm.land/bubbletea/v2"

	"github.com/seed-3119e985/genv/remote"
	"github.com/seed-3119e985/genv/remote/operator"
	"github.com/seed-3119e985/genv/snapshot"
)

// Options are what a view needs from outside.
type Options struct {
	Source Updates
	In     io.Reader
	Out    io.Writer // a terminal, for Run
	Now    func() time.Time
	Colour bool
	Filter Filter // at the beginning
	// Hosts limits what is shown to these hosts; nil for all. Users are counted on all.
	Hosts map[snapshot.Hostname]bool
	// SSH are the arguments of ssh before the host.
	SSH []string
	// Act asks the controller for something; nil if this view may not. NoAct then says why, and what to do about it.
	Act   func(context.Context, *operator.Instruction) (operator.Answer, error)
	NoAct string
	// Failures, if set, gets the hosts that failed since the last time, before Plain prints them.
	Failures func(failures []remote.Failure, total int)
}

// Run shows the fleet until the user quits or ctx ends.
func Run(ctx context.Context, options Options) error {
	within, cancel := context.WithCancel(ctx)
	defer cancel() // ends the wait for the next update
	program := tea.NewProgram(newModel(within, options), tea.WithInput(options.In), tea.WithOutput(options.Out),
		tea.WithoutSignalHandler())
	stop := context.AfterFunc(ctx, program.Quit)
	defer stop()
	_, err := program.Run()
	return err
}

// only leaves out rows of other hosts than those that are asked for.
func (o *Options) only(rows []tabRow) []tabRow {
	if o.Hosts == nil {
		return rows
	}
	return slices.DeleteFunc(rows, func(r tabRow) bool { return r.id.host != "" && !o.Hosts[r.id.host] })
}
