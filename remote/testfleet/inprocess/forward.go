package inprocess

import (
	"io"
	"net"
	"strconv"
	"sync"

	"golang.org/x/crypto/ssh"
)

// forward makes every host a jump host, but only to the hosts of its own fleet.
func (c *connection) forward(offer ssh.NewChannel) {
	var to struct {
		Address    string
		Port       uint32
		Origin     string
		OriginPort uint32
	}
	if ssh.Unmarshal(offer.ExtraData(), &to) != nil || !c.server.fleet.listens(to.Address, to.Port) {
		_ = offer.Reject(ssh.Prohibited, "the fleet forwards to its own hosts only")
		return
	}
	var dialer net.Dialer
	target, err := dialer.DialContext(c.ctx, "tcp", net.JoinHostPort(to.Address, strconv.Itoa(int(to.Port))))
	if err != nil {
		_ = offer.Reject(ssh.ConnectionFailed, err.Error())
		return
	}
	channel, requests, err := offer.Accept()
	if err != nil {
		_ = target.Close() // the connection is gone
		return
	}
	c.work.Go(func() { ssh.DiscardRequests(requests) })
	c.join(channel, target)
}

// join copies both ways until either way ends.
func (c *connection) join(channel ssh.Channel, target net.Conn) {
	var once sync.Once
	end := func() {
		_ = channel.Close() // the other way ends with it
		_ = target.Close()
	}
	defer once.Do(end)
	c.work.Go(func() {
		defer once.Do(end)
		_, _ = io.Copy(target, channel) // how it ended is the clients' affair
	})
	_, _ = io.Copy(channel, target)
}

func (f *Fleet) listens(address string, port uint32) bool {
	for _, h := range f.servers {
		if h.Address == address && uint32(f.Port) == port {
			return true
		}
	}
	return false
}
