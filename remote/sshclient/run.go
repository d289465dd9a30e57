package sshclient

import (
	"context"
	"errors"
	"sync"

	"github.com/seed-3119e985/genv/remote"
)

// Run runs a command and waits for its end, the command's deadline or ctx's end.
// Its error is an *remote.Error; the Output holds what had arrived by then. A
// Timeout, a Cancelled or an OutcomeUnknown does not say that nothing was done.
func (c *Client) Run(ctx context.Context, h remote.Host, command remote.Command) (remote.Output, error) {
	s, err := c.open(ctx, h)
	if err != nil {
		return remote.Output{}, err
	}
	defer s.Close()
	ctx, cancel := c.commandContext(ctx)
	defer cancel()
	if err := s.start(ctx, c, command.ShellLine()); err != nil {
		return remote.Output{}, err
	}
	stdout := &capture{limit: c.options.MaxStdout, beyond: s.abort}
	ended := s.carry(command.Stdin, stdout)
	select {
	case <-ended:
		err = s.verdict(stdout)
	case <-ctx.Done():
		err = stopped(ctx, h.Name+": while the command ran")
		s.Close()
		<-ended
	}
	out := remote.Output{Stdout: stdout.bytes(), Stderr: s.Stderr()}
	var e *remote.Error
	if errors.As(err, &e) {
		e.Stderr = string(out.Stderr)
	}
	return out, err
}

// carry moves input and output, and closes the channel it returns when all of
// it is over.
func (s *Session) carry(input []byte, stdout *capture) <-chan struct{} {
	ended := make(chan struct{})
	var moving sync.WaitGroup
	moving.Go(func() { drain(s.Stdout, stdout) })
	moving.Go(func() {
		_, _ = s.Stdin.Write(input) // a command may end without reading it
		_ = s.Stdin.Close()
	})
	go func() {
		<-s.waited
		moving.Wait()
		s.drains.Wait()
		close(ended)
	}()
	return ended
}
