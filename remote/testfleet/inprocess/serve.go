package inprocess

import (
	"bytes"
	"context"
	"errors"
	"net"

	"golang.org/x/crypto/ssh"
)

// maxSessions is sshd's default: the eleventh session at a time on a connection
// is refused (man sshd_config, MaxSessions).
const maxSessions = 10

// serve speaks SSH on a connection until either side ends it.
func (s *Server) serve(raw net.Conn) {
	ctx, cancel := context.WithCancel(s.connections())
	c := &connection{server: s, faults: s.current(), net: newGate(raw), ctx: ctx}
	s.fleet.work.Go(func() {
		<-ctx.Done()
		_ = c.net.Close() // it may be closed already
	})
	defer c.work.Wait()
	defer cancel()
	if c.faults.silent {
		c.net.freeze()
		_, _ = c.net.Read(nil) // returns when the client or the fleet ends it
		return
	}
	server, channels, requests, err := ssh.NewServerConn(c.net, c.config())
	if err != nil {
		return // the client gets an error in its own handshake
	}
	c.user = server.User()
	s.count(func(n *Counts) { n.Logins++ })
	c.work.Go(func() { ssh.DiscardRequests(requests) }) // "no" is sshd's answer to keepalive@openssh.com too
	for channel := range channels {
		if channel.ChannelType() == "session" {
			c.openSession(channel)
		} else {
			_ = channel.Reject(ssh.UnknownChannelType, "unknown channel type")
		}
	}
}

func (c *connection) config() *ssh.ServerConfig {
	config := &ssh.ServerConfig{
		ServerVersion: "SSH-2.0-genv_sim",
		PublicKeyCallback: func(_ ssh.ConnMetadata, key ssh.PublicKey) (*ssh.Permissions, error) {
			if c.faults.noAuth || !bytes.Equal(key.Marshal(), c.server.fleet.key.Marshal()) {
				return nil, errors.New("not the fleet's client key")
			}
			return nil, nil // no restrictions
		},
	}
	config.AddHostKey(c.server.key)
	return config
}

func (c *connection) openSession(channel ssh.NewChannel) {
	if int(c.sessions.Add(1)) > maxSessions {
		c.sessions.Add(-1)
		_ = channel.Reject(ssh.ConnectionFailed, "open failed") // sshd's words
		return
	}
	c.work.Go(func() {
		defer c.sessions.Add(-1)
		c.session(channel)
	})
}
