// Package agent is both ends of the conversation between the controller and a
// host. A host answers requests over stdin and stdout of a command that stays,
// `genv usage serve`: a question costs a message, not a login.
//
// On the host:
//
//	s := agent.Server{Token: token, Greeting: greeting, Handler: handler, Idle: time.Minute}
//	err := s.Serve(ctx, stdin, stdout)
//
// On the controller a Pool keeps a conversation with every host, and falls back
// to single commands (Commands) or to reading only where a host has another genv
// or none. docs/protocol.md has the bytes. Whatever breaks the protocol ends the
// conversation for good, and nothing of what came is used.
package agent
