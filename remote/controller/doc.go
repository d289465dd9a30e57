// Package controller runs the cycle of `genv remote enforce`: collect a snapshot from
// every host, judge, record, send reports, and learn what came of them.
//
//	c := &controller.Controller{Hosts: hosts, Link: pool, Fanout: 64, Policy: policy, Now: time.Now}
//	err := controller.Loop(ctx, c, controller.Schedule{Interval: 10 * time.Second}, show)
//
// Only Controller.send changes hosts; in a dry run there is nothing to send. Hosts are
// asked through a Link, which remote/agent provides. The package prints nothing: a
// Cycle has what was seen, concluded and done, and Sinks get the events.
package controller
