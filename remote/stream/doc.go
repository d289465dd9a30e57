// Package stream is the framed protocol of `genv usage serve`, both ends. A host
// answers requests, one after the other, over stdin and stdout of a command
// that stays: a question costs a message, not a login.
//
// On the host:
//
//	s := stream.Server{Token: token, Greeting: greeting, Handler: handler, Idle: time.Minute}
//	err := s.Serve(ctx, stdin, stdout)
//
// On the controller:
//
//	c, err := stream.Open(ctx, stdout, stdin, token)
//	answer, err := c.Call(ctx, "snapshot", body)
//
// docs/protocol.md has the bytes. The package knows no GPU: bodies are bytes.
// Whatever breaks the protocol ends the conversation for good, and nothing of
// what came is used: the caller closes the session and starts again.
package stream
