package install

import (
	"bytes"
	"context"
	_ "embed" // the scripts
	"errors"

	"github.com/seed-3119e985/genv/remote"
)

// Password is sudo's password for all hosts. A wrong one is tried once in all, so that it locks no account: until a
// host has accepted it, one host at a time tries it, and when a host has refused it, no other one is given it.
type Password struct {
	secret []byte
	turn   chan passwordState // holds the state while no host tries
}

type passwordState struct {
	accepted bool   // by some host
	refused  string // the host that refused it
}

// NewPassword takes over the bytes of a password. It has one line.
func NewPassword(secret []byte) (*Password, error) {
	if len(secret) == 0 || bytes.ContainsAny(secret, "\n\r\x00") {
		return nil, errors.New("the password is empty, or has a character that sudo doesn't take")
	}
	p := &Password{secret: secret, turn: make(chan passwordState, 1)}
	p.turn <- passwordState{}
	return p, nil
}

// Wipe overwrites the password. It can't be used any more.
func (p *Password) Wipe() { clear(p.secret) }

// try gives the password to a host by means of check, which says whether the host accepted
// it. An error of check says nothing about the password.
func (p *Password) try(ctx context.Context, host string, check func([]byte) error) error {
	var now passwordState
	select {
	case now = <-p.turn:
	case <-ctx.Done():
		return remote.Errorf(remote.Cancelled, "while another host was asked whether the password is right: %w",
			context.Cause(ctx))
	}
	if now.refused != "" {
		p.turn <- now
		return refusedBefore(now.refused)
	}
	atOnce := now.accepted // with other hosts
	if atOnce {
		p.turn <- now
	}
	err := check(p.secret)
	if atOnce {
		now = <-p.turn
	}
	if errors.Is(err, errPasswordRefused) {
		now.refused = host
	}
	now.accepted = now.accepted || err == nil
	p.turn <- now
	return err
}

func refusedBefore(host string) error {
	e := remote.Errorf(remote.Cancelled, "not tried: %s refused the password", host)
	e.Next = "run it again with the right password, for hosts that have the same one"
	return e
}

// errPasswordRefused is wrapped when sudo took the password for a wrong one.
var errPasswordRefused = errors.New("sudo refused the password")

// withoutSecret is an error without the password in its text: a host may repeat what it was sent.
func withoutSecret(err error, secret []byte) error {
	e, ok := errors.AsType[*remote.Error](err)
	if !ok || len(secret) == 0 {
		return err
	}
	message, stderr := string(hidden([]byte(err.Error()), secret)), string(hidden([]byte(e.Stderr), secret))
	if message == err.Error() && stderr == e.Stderr {
		return err
	}
	return &remote.Error{Class: e.Class, Err: errors.New(message), Stderr: stderr, Next: e.Next}
}

// hidden is what a host said, without the password.
func hidden(said, secret []byte) []byte {
	if len(secret) == 0 {
		return said
	}
	return bytes.ReplaceAll(said, secret, []byte("********"))
}
