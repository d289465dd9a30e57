package agent

import (
	"context"
	"crypto/rand"
	"errors"
	"io"
	"strings"
	"sync/atomic"

	"github.com/seed-3119e985/genv/remote"
	"github.com/seed-3119e985/genv/remote/agent/frame"
	"github.com/seed-3119e985/genv/snapshot/text"
)

// openStream starts `genv usage serve` and reads its greeting. Over ssh(1), a busy sshd shows only here.
func (c *Conn) openStream(ctx context.Context) (*streamTransport, error) {
	t, err := remote.UntilNotBusy(ctx, func() (*streamTransport, error) {
		t, err := c.greet(ctx)
		if !sudoRefuses(err) || !c.tokenFlag.CompareAndSwap(false, true) {
			return t, err
		}
		withFlag, again := c.greet(ctx) // sudoers of an earlier version may allow only `usage serve *`
		if again != nil {
			c.tokenFlag.Store(false)
		}
		if sudoRefuses(again) {
			return nil, err
		}
		return withFlag, again
	})
	if err == nil && !t.stream.Greeting.Can(RequestSnapshot) {
		c.pool.running.Go(t.close)
		return nil, withoutRoot(c.host)
	}
	return t, err
}

func sudoRefuses(err error) bool {
	return remote.ClassOf(err) == remote.Sudo || remote.ClassOf(err) == remote.SudoRefused
}

func (c *Conn) greet(ctx context.Context) (*streamTransport, error) {
	token := rand.Text()
	command := c.host.Genv("usage", "serve")
	flag := c.tokenFlag.Load()
	if flag {
		command = c.host.Genv("usage", "serve", "--token", token)
	}
	session, err := c.pool.Start(ctx, c.host, command)
	if err != nil {
		return nil, err
	}
	if !flag {
		// A host that doesn't read it doesn't greet either.
		c.pool.running.Go(func() { _, _ = session.Write([]byte(token + "\n")) })
	}
	t := &streamTransport{session: session, pool: c.pool, token: token, tookOver: &c.tookOver}
	before := &preface{Reader: session, end: text.Tail{Limit: maxPreface}}
	if t.stream, err = OpenStream(ctx, before, session, token); err == nil {
		before.over.Store(true)
		c.tokenFlag.Store(flag && t.stream.Greeting.Can(capabilityControllers))
		t.stream.WriteTimeout = c.pool.Timeout
		return t, nil
	}
	noGreeting := errors.Is(err, frame.ErrNoGreeting)
	if noGreeting && !flag && strings.Contains(before.end.String(), string(frame.Beacon(""))) {
		c.tokenFlag.Store(true)
		c.pool.running.Go(session.Close)
		return c.greet(ctx)
	}
	if noGreeting && errors.Is(err, io.EOF) {
		if _, reason := t.closeReason(ctx); reason != nil {
			err = reason
		}
	}
	c.pool.running.Go(session.Close)
	return nil, before.explain(c.host.Name, classify(ctx, err))
}

// preface keeps the end of a login's output before the greeting. It may say why there is none, as nologin(8) does.
type preface struct {
	io.Reader
	over atomic.Bool
	end  text.Tail
}

const maxPreface = 512 // bytes

func (p *preface) Read(b []byte) (int, error) {
	n, err := p.Reader.Read(b)
	if n > 0 && !p.over.Load() {
		_, _ = p.end.Write(b[:n]) // it returns no error
	}
	return n, err
}

// capabilityControllers is of versions that take the token as a flag, and greet with an empty one without it.
const capabilityControllers = "controllers"

// explain adds the last line to an error that has only a status. What takes too long is the login or sudo.
func (p *preface) explain(host string, err error) error {
	said := text.LastLine(p.end.String())
	if said != "" {
		said = ": it says: " + said
	}
	e, ok := errors.AsType[*remote.Error](err)
	if !ok || e.Stderr != "" || e.Next != "" {
		return err
	}
	if e.Class == remote.Timeout || said != "" && (e.Class == remote.CommandFailed || e.Class == remote.InvalidOutput) {
		return remote.Errorf(e.Class, "%w%s", err, said).WithNext("let the login run commands without a terminal: " +
			"look at its shell and its rc files, at limits of logins, and at sudo; try `ssh " + host + " true`")
	}
	return err
}
