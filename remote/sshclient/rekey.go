package sshclient

import (
	"crypto/sha256"
	"errors"
	"net"
	"sync"

	"golang.org/x/crypto/ssh"
)

// loginKey is the host key of a connection. The first one is checked; in the key exchanges that
// follow on the same connection, the host has to show the same one, and nothing is asked again, as
// in ssh (sshconnect.c, verify_host_key). Of a connection that is logged in no more is kept
// than the sum of the key, since there are thousands.
type loginKey struct {
	mu    sync.Mutex
	check *hostKeyCheck // nil once it is logged in
	sum   [sha256.Size]byte
}

var errOtherKey = errors.New("the host has shown another key than at the login")

// callback is for ssh.ClientConfig.
func (k *loginKey) callback(host string, peer net.Addr, key ssh.PublicKey) error {
	k.mu.Lock()
	defer k.mu.Unlock()
	sum := sha256.Sum256(key.Marshal())
	if k.sum == sum {
		return nil
	}
	if k.check == nil || k.sum != [sha256.Size]byte{} {
		return errOtherKey
	}
	err := k.check.callback(host, peer, key)
	if err == nil {
		k.sum = sum
	}
	return err
}

// loggedIn forgets what only a login needs.
func (k *loginKey) loggedIn() {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.check = nil
}
