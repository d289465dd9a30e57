// Package shell writes the code that an activated shell evaluates, and finds the
// programs that the shims replace. Its sub-packages smi and docker are the shims.
//
// A shell is initialised with
//
//	eval "$(genv shell --init)"
//
// which defines a function named genv. For the commands that change the shell
// (activate, deactivate, attach, detach, config) the function runs the program
// with one more file descriptor, to which the program writes code for the shell; the
// standard streams stay the user's own. The shell evaluates the code only if the
// program ends with status 0, so that a command that fails doesn't change it. Such a
// command does
//
//	caller, err := shell.CallerFrom(os.Getenv) // ErrNotInitialised: print it
//	…                                          // change the state files
//	err = caller.Apply(shell.Activate(shell.Active{EID: "1667", Devices: devices}))
//
// A shell that genv 1.4.3 initialised evaluates what such a command prints: see Shell143.
//
// The shell itself keeps the former values of its variables, in variables that are not
// exported, since only the shell knows what was set, unset and exported.
package shell
