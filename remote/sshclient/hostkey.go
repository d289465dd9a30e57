package sshclient

import (
	"errors"
	"fmt"
	"net"
	"slices"
	"strconv"

	"golang.org/x/crypto/ssh"

	"github.com/seed-3119e985/genv/remote"
	"github.com/seed-3119e985/genv/remote/sshclient/config"
	"github.com/seed-3119e985/genv/remote/sshclient/hostkeys"
)

// hostKeyCheck is the check of the host key in a handshake, and its result.
type hostKeyCheck struct {
	address    string // name:port under which the key is looked up
	algorithms []string
	callback   ssh.HostKeyCallback
	seen       bool          // the host has sent a key
	key        ssh.PublicKey // the accepted key
	refused    error         // why the key was refused
}

func (c *Client) hostKeyCheck(t target) (*hostKeyCheck, error) {
	files := slices.Concat(t.UserKnownHosts, t.GlobalKnownHosts)
	db, err := c.hostKeys.Load(files...)
	if err != nil {
		return nil, &remote.Error{Class: remote.Configuration, Err: err}
	}
	check := &hostKeyCheck{address: hostkeys.Address(t.HostName, t.Port)}
	if t.HostKeyAlias != "" {
		check.address = hostkeys.Address(t.HostKeyAlias, 22)
	}
	check.algorithms = db.Algorithms(check.address, t.HostKeyAlgorithms)
	check.callback = func(_ string, _ net.Addr, key ssh.PublicKey) error {
		check.seen = true
		if err := t.CheckSize(key); err != nil {
			check.refused = remote.Errorf(remote.HostKey, "the host key of %s is refused: %w", t.Host, err)
			return check.refused
		}
		if cert, ok := key.(*ssh.Certificate); ok && !t.AcceptsAuthority(cert) {
			key = cert.Key // as ssh does with a certificate that CASignatureAlgorithms exclude
		}
		if err := c.checkResult(t, check.address, key, db.Check(check.address, key)); err != nil {
			check.refused = &keyRefusal{err, func() bool { now, err := c.hostKeys.Load(files...); return err != nil || now != db }}
			return check.refused
		}
		check.key = key
		return nil
	}
	return check, nil
}

// checkResult decides on a key by the result of the look-up in known_hosts.
func (c *Client) checkResult(t target, address string, key ssh.PublicKey, err error) error {
	if err == nil {
		return nil
	}
	if c.options.InsecureHostKeys {
		c.options.Log.Warn().Str("host", t.Host).Str("fingerprint", ssh.FingerprintSHA256(key)).
			Msg("INSECURE: the host key is accepted without a check, as requested for this run: " + err.Error())
		return nil
	}
	var unknown *hostkeys.Unknown
	var changed *hostkeys.Changed
	switch {
	case errors.As(err, &changed):
		return &remote.Error{Class: remote.HostKeyChanged, Err: fmt.Errorf("%w; nothing was sent", err)}
	case !errors.As(err, &unknown):
		return &remote.Error{Class: remote.HostKey, Err: err}
	}
	if t.HostKeyChecking == config.StrictAcceptNew {
		if err = c.hostKeys.Accept(t.UserKnownHosts, t.HashKnownHosts, address, key); err == nil {
			return nil
		}
		if !errors.As(err, &unknown) {
			return &remote.Error{Class: remote.HostKey, Err: err}
		}
	}
	return remote.Errorf(remote.HostKey, "%w. If the fingerprint is right, add the key: %s", err, addCommand(t))
}

// addCommand is the command that adds the host's key to known_hosts.
func addCommand(t target) string {
	file := "~/.ssh/known_hosts"
	if len(t.UserKnownHosts) > 0 {
		file = remote.Quote(t.UserKnownHosts[0])
	}
	if len(t.ProxyJump) > 0 || t.ProxyCommand != "" || t.HostKeyAlias != "" {
		return "ssh -o StrictHostKeyChecking=ask " + remote.Quote(t.Host) + " true"
	}
	return "ssh-keyscan -p " + strconv.Itoa(t.Port) + " " + remote.Quote(t.HostName) + " >> " + file
}

// keyRefusal is the error for a refused host key.
type keyRefusal struct {
	error
	outdated func() bool // known_hosts has changed since
}

func (e *keyRefusal) Unwrap() error { return e.error }

// Outdated is for remote.Outdated.
func (e *keyRefusal) Outdated() bool { return e.outdated() }
