// Package agent is both ends of the connection between the controller and the genv on a host, which answers requests
// over stdin and stdout of a command that stays, `genv usage serve`: a request costs a message, not a login.
// docs/protocol.md has the bytes.
//
// On a host a Responder answers out of a Backend:
//
//	answers := &agent.Answers{Backend: backend}
//	s := &agent.Responder{Token: token, Handler: answers.Handle, Idle: time.Minute}
//	s.Greeting = agent.NewGreeting(version)
//	err := s.Serve(ctx, stdin, stdout)
//
// On the controller a Pool has a Conn for each host, in one of the states idle,
// dialing, greeting, ready, asking, lost and backing off:
//
//	pool := &agent.Pool{Start: agent.StartWith(client.Start), Network: client, Timeout: 10 * time.Second}
//	snapshot, err := pool.Snapshot(ctx, host)
//
// A Conn asks through a transport: the stream, or for a genv 1.4.3 one command per request, or for a host without genv
// nvidia-smi and /proc, read only. Whatever breaks the protocol ends the connection, and nothing of what came is used.
//
// A remote.Backoff decides when a host that fails is tried again, which a Pool does in the
// background, for a minute after the host was last asked for. A request is never repeated,
// except one for a snapshot after an orderly end of the connection.
package agent
