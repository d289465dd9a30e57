// Package hook tells programs and web addresses of events, as JSON, without
// keeping anybody waiting.
//
//	q := hook.New(file.Hooks, func(err error) { log.Warn().Err(err).Msg("hook") })
//	q.Tell("warn", body)
//	…
//	q.Close(5 * time.Second)
//
// Each hook has its own short queue and is told one event after the other, each
// try with a deadline, and again when it fails. What does not fit into the queue
// is dropped, and that is said. What a hook does decides nothing.
package hook
