// Package delegate connects the two programs of genv. People and scripts only start genv.
// It is small, since every command of a user and every shim starts it, so what only a
// controller needs is in genv-remote, which genv becomes with exec(2): the process, its
// streams, its arguments and its environment stay the same.
//
//	err := delegate.Start(os.Args, version) // in genv; returns nil if the line is genv's own
//	err := delegate.Accept(version)         // in genv-remote
//
// Each program finds the other one by its own place, never in PATH: in the same folder, or in
// bin and libexec/genv of one prefix. Both must be of the same version.
package delegate
