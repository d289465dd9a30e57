// Package shell is what an activated shell evaluates, and the programs that
// stand in front of nvidia-smi and docker in it.
//
// A shell is initialised with
//
//	eval "$(genv shell --init)"
//
// which defines a function named genv. For the commands that change the shell
// (activate, deactivate, attach, detach, config) the function runs the program
// with a spare file descriptor, on which the program answers with code for the
// shell; the standard streams stay the user's own. The code is evaluated only
// when the program ends with status 0, so that a command that fails leaves the
// shell as it was. In the program, such a command reads
//
//	caller, err := shell.CallerFrom(os.Getenv) // ErrNotInitialised: say so
//	…                                          // change the state files
//	err = caller.Apply(shell.Activate(shell.Active{EID: "1667", Devices: devices}))
//
// What a variable was before is kept in the shell itself, in variables that are
// not exported, since only the shell knows what was set, unset and exported.
//
// The package keeps no books and decides nothing about devices. Its
// sub-packages smi and docker hold what the two shims do.
package shell
