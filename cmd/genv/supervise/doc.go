// Package supervise runs a command for `genv run` and `genv lock` as if it replaced genv: with
// its streams, its exit status, and the signals that genv gets. What is registered or locked
// meanwhile is up to the caller.
//
//	signals, stop := supervise.Signals()
//	defer stop()
//	return supervise.Run(&p.Program, "lock", exec.Command("make"), signals)
package supervise
