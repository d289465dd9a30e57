// Package controller runs the loop of `genv remote enforce`: at each event it judges what every host
// reports, records, sends orders, and learns what came of them.
//
//	fleet := controller.Survey{Hosts: hosts, Link: pool, Fanout: 64}
//	c := &controller.Controller{Options: controller.Options{Survey: fleet, Policy: policy, Now: time.Now}}
//	err := controller.Loop(ctx, c, controller.Schedule{Interval: 10 * time.Second}, show)
//
// Only Delivery.Send changes hosts; in a dry run it is not called. Hosts are asked through a Link, which remote/agent
// provides. The package prints nothing: a Cycle has what was seen, concluded and done, and Sinks get the events.
//
// Loop takes one event after the other (events.go), and Controller.cycle is what happens at each: it learns what came
// of deliveries, takes in answers, judges all hosts, records, saves the memory, and sends deliveries: orders, and what
// companions plan.
package controller
