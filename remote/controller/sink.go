package controller

import "github.com/seed-3119e985/genv/enforce"

// Sink consumes events, once each and in order; it is never called from two
// goroutines at a time and must not wait for anything slow. The record and the
// messages to users are not sinks: the record comes before anything is sent, and
// messages are sent to the hosts with the reports.
type Sink interface {
	Consume(cycle *Cycle, events []enforce.Event)
}
