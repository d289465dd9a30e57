// Package notify writes the texts of messages to users, and sends events as JSON
// to programs and web addresses, without delaying the caller.
//
//	for _, n := range notify.Notifications(finding, notify.NewOwners(cluster), now) {
//		fmt.Println(n.UID, n.Text, n.Advice)
//	}
//
//	q := notify.New(file.Hooks, func(r notify.Result) { … })
//	q.Send(notify.Event{Name: "warn", JSON: body})
//	…
//	q.Close(5 * time.Second)
//
// Each hook has its own short queue and gets one event after the other. Each try
// has a deadline, and failures are retried. Events that don't fit into the queue
// are dropped, which is reported. Hooks don't influence any decision.
package notify
