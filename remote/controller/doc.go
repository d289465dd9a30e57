// Package controller runs the cycle of `genv remote enforce`: collect a snapshot from
// every host, judge, record, send orders, and learn what came of them.
//
//	fleet := controller.Asker{Hosts: hosts, Link: pool, Fanout: 64}
//	c := &controller.Controller{Options: controller.Options{Asker: fleet, Policy: policy, Now: time.Now}}
//	err := controller.Loop(ctx, c, controller.Schedule{Interval: 10 * time.Second}, show)
//
// Only dispatcher.send changes hosts; in a dry run it is not called. Hosts are asked
// through a Link, which remote/agent provides. The package prints nothing: a Cycle has
// what was seen, concluded and done, and Sinks get the events.
//
// Read it from the values up: Cycle, FleetMemory, and visit with its errands (what guards are
// asked, messages, orders); then the steps, each in its file (ask, merge duplicates, record,
// dispatch); Controller puts them together, and Loop repeats it.
package controller
