// Package notify words messages to users, and tells programs and web addresses of
// events, as JSON, without delaying the caller.
//
//	for _, n := range notify.Notifications(finding, notify.NewOwners(cluster), now) {
//		fmt.Println(n.UID, n.Text, n.Advice)
//	}
//
//	q := notify.New(file.Hooks, func(err error) { log.Warn().Err(err).Msg("hook") })
//	q.Send("warn", body)
//	…
//	q.Close(5 * time.Second)
//
// Each hook has its own short queue and gets one event after the other, each try
// with a deadline, and again when it fails. What does not fit into the queue is
// dropped, which is reported. What a hook does decides nothing.
package notify
