package sshclient

import (
	"context"
	"errors"
	"io"
	"sync"

	"github.com/seed-3119e985/genv/remote"
)

// Run runs a command and waits until it ends, its timeout is over or ctx ends. Its
// error is a *remote.Error; the Output is what was received until then. After a
// Timeout, Cancelled or OutcomeUnknown the command may have been carried out.
func (c *Client) Run(ctx context.Context, h remote.Host, command remote.Command) (remote.Output, error) {
	s, err := c.open(ctx, h)
	if err != nil {
		return remote.Output{}, err
	}
	defer s.Close()
	ctx, cancel := c.commandContext(ctx)
	defer cancel()
	if err := s.start(ctx, command.ShellLine()); err != nil {
		return remote.Output{}, err
	}
	stdout := &capture{name: "stdout", limit: c.options.MaxStdout, onOverflow: s.abort}
	ended := s.transfer(command, stdout)
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

// transfer writes the input and reads the output. It closes the channel that it
// returns when the command has ended and its output is read.
func (s *Session) transfer(command remote.Command, stdout *capture) <-chan struct{} {
	ended := make(chan struct{})
	var copying sync.WaitGroup
	copying.Go(func() { drain(s.Stdout, stdout) })
	copying.Go(func() {
		_, err := s.Stdin.Write(command.Stdin) // a command may end without reading its input
		if err == nil && command.Upload != nil {
			_, _ = io.Copy(s.Stdin, command.Upload)
		}
		_ = s.Stdin.Close()
	})
	go func() {
		<-s.ended
		copying.Wait()
		close(ended)
	}()
	return ended
}
