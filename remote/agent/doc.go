// Package agent is both ends of the connection between the controller and the genv
// on a host, which answers requests over stdin and stdout of a command that stays,
// `genv usage serve`: a request costs a message, not a login. docs/protocol.md has
// the bytes.
//
// On a host a Server answers out of a Backend:
//
//	s := agent.Server{Token: token, Greeting: agent.NewGreeting(version), Handler: &agent.Answers{Backend: backend}, Idle: time.Minute}
//	err := s.Serve(ctx, stdin, stdout)
//
// On the controller a Pool has a Conn for each host, in one of the states idle,
// dialing, greeting, ready, asking, lost and backing off:
//
//	pool := &agent.Pool{Start: agent.StartWith(client.Start), Network: client, Timeout: 10 * time.Second}
//	snapshot, err := pool.Snapshot(ctx, host)
//
// A Conn asks through a transport: the stream, or for a genv 1.4.3 one command per
// request, or for a host without genv nvidia-smi and /proc, read only. Whatever
// breaks the protocol ends the connection, and nothing of what came is used.
//
// # Retries
//
// The only retry policy is in backoff.go. A request is never repeated, except one
// for a snapshot after an orderly end of the connection. A lost host is tried in
// the background, for a minute after it was last asked for:
//
//   - A host that does not answer is probed: one TCP connect, and the wait for the
//     first byte of sshd's banner, for 1.5 s. The first pause is 250 ms; they double
//     until probes begin every 2.8 to 3.4 s, at random. Ten times a second those that
//     are due begin together. Each host has at most one probe under way, and no
//     goroutine between probes. Names are resolved and ssh_config is read at most
//     every 30 s. So a host is enforced within 5 s of being reachable, at an interval
//     of 1 s.
//   - A host that answers is logged in to, and asked for a snapshot before it comes
//     back into the cycles. If that fails, it is tried about every 3 s; all such
//     hosts together get 10 logins a second, and a quarter of Fanout.
//   - Failures that need an administrator are tried less often: refused keys after 2
//     to 16 minutes (sshd locks out addresses at which logins keep failing), unknown
//     host keys after 10 s to 2 minutes, changed ones after 1 to 10 minutes, sudo and
//     versions after 3 to 30 s. A key that was accepted before gets five tries 3 s
//     apart, since a booting host refuses all keys. A changed known_hosts ends the
//     pause.
//   - Hosts behind a jump host or a ProxyCommand can't be probed; each try is a
//     login, by the second rule. One that drops packets silently is found again when
//     the login that waits for it is over, after at most the connect timeout.
package agent
