// Package top is the live view of a fleet on a terminal: `genv remote top`.
//
//	source := …                                    // a controller's socket, or looks of this program
//	err := top.Run(ctx, top.Options{Source: source, In: os.Stdin, Out: os.Stdout, Now: time.Now})
//
// A Model has what is shown and which row is selected. Its Update takes keys and changes
// of the fleet, and its View draws the rows that fit on the screen; both are free of I/O.
// A row is selected by its identity, such as a process's host, PID and start time. When it
// is gone no other row takes its place until a key moves the selection.
//
// Plain prints the same as lines, for screen readers and logs.
//
// The package asks no host anything, and changes nothing itself: actions are requests to
// the controller, which decides on them.
package top
