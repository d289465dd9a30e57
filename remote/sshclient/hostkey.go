package sshclient

import (
	"context"
	"crypto/sha256"
	"errors"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"golang.org/x/crypto/ssh"

	"github.com/seed-3119e985/genv/remote"
	"github.com/seed-3119e985/genv/remote/sshclient/hostkeys"
	"github.com/seed-3119e985/genv/snapshot/state/folder"
)

type hostKeyCheck struct {
	client     *Client
	ctx        context.Context // of the login
	target     resolvedEndpoint
	name       hostkeys.Name // looked up
	rules      hostkeys.Rules
	host       *hostkeys.Known
	stamp      string // stamp of the files
	algorithms []string

	seen    bool          // the host sent a key
	key     ssh.PublicKey // the accepted one, or the one in an accepted certificate
	refused error         // why it was refused
}

func (c *Client) hostKeyCheck(ctx context.Context, t resolvedEndpoint) (*hostKeyCheck, error) {
	check := &hostKeyCheck{client: c, ctx: ctx, target: t, name: hostkeys.Name{Host: t.HostName, Port: t.Port}}
	if t.HostKeyAlias != "" {
		check.name = hostkeys.Name{Host: t.HostKeyAlias}
	}
	check.rules = hostkeys.Rules{Authority: t.AcceptsAuthority, Hash: t.HashKnownHosts}
	if len(t.UserKnownHosts) > 0 {
		check.rules.AddTo = t.UserKnownHosts[0]
	}
	check.stamp = folder.Stamp(check.files()...)
	check.host = c.hostKeys.Lookup(check.files(), check.name)
	if t.FixedHostKeyOrder {
		check.algorithms = t.HostKeyAlgorithms
		return check, nil
	}
	// Like ssh, this asks the command for the name without port or alias.
	ordered, err := check.ask(check.host, hostkeys.Name{Host: t.HostName})
	if err != nil {
		return nil, err
	}
	check.algorithms = ordered.Algorithms(t.HostKeyAlgorithms)
	return check, nil
}

// knownToAll is for all accounts, like ssh's own file, and used where that is.
const sshKnownToAll, knownToAll = "/etc/ssh/ssh_known_hosts", "/etc/genv/ssh_known_hosts"

func (k *hostKeyCheck) files() []string {
	files := slices.Concat(k.target.UserKnownHosts, k.target.GlobalKnownHosts)
	if slices.Contains(k.target.GlobalKnownHosts, sshKnownToAll) {
		files = append(files, knownToAll)
	}
	return files
}

// KnownHosts returns options that make ssh(1) use knownToAll too.
func (c *Client) KnownHosts(ctx context.Context, h remote.Host) []string {
	settings, err := c.resolve(ctx, c.endpointOf(h))
	if err != nil {
		return nil // ssh reports the error
	}
	return knownHostsOptions(settings.GlobalKnownHosts)
}

func knownHostsOptions(global []string) []string {
	if !slices.Contains(global, sshKnownToAll) {
		return nil
	}
	return []string{"-o", "GlobalKnownHostsFile=" + strings.Join(append(slices.Clip(global), knownToAll), " ")}
}

func (k *hostKeyCheck) ask(host *hostkeys.Known, name hostkeys.Name) (*hostkeys.Known, error) {
	if len(k.target.KnownHostsCommand) == 0 {
		return host, nil
	}
	with, err := k.client.hostKeys.Ask(k.ctx, host, k.target.KnownHostsCommand, name)
	if err != nil {
		return nil, k.unusable(err)
	}
	return with, nil
}

func (k *hostKeyCheck) unusable(err error) error {
	if k.ctx.Err() != nil {
		return stopped(k.ctx, "while checking the key of "+k.target.HostName)
	}
	return &remote.Error{Class: remote.Configuration, Err: err}
}

func (k *hostKeyCheck) callback(_ string, peer net.Addr, key ssh.PublicKey) error {
	k.seen = true
	if err := k.verify(peer, key); err != nil {
		k.refused = &loginError{error: err, outdated: func() bool { return folder.Stamp(k.files()...) != k.stamp }}
		return k.refused
	}
	k.key = hostkeys.Plain(key)
	return nil
}

// verify checks in ssh's order (sshconnect.c, verify_host_key), without DNS (VerifyHostKeyDNS).
func (k *hostKeyCheck) verify(peer net.Addr, key ssh.PublicKey) error {
	if err := k.target.CheckSize(key); err != nil {
		return remote.Errorf(remote.HostKey, "the host key of %s is refused: %w", k.target.Host, err)
	}
	host, err := k.ask(k.host, k.name)
	if err != nil {
		return err
	}
	err = k.client.checkResult(k, key, host.Check(key, k.rules, time.Now()))
	_, certified := key.(*ssh.Certificate)
	direct := len(k.target.ProxyJump) == 0 && k.target.ProxyCommand == ""
	tcp, ok := peer.(*net.TCPAddr)
	if err == nil && direct && k.target.CheckHostIP && !certified && ok && !tcp.IP.IsLoopback() {
		err = k.verifyAddress(hostkeys.Name{Host: tcp.IP.String(), Port: k.target.Port}, key)
	}
	return err
}

// verifyAddress is CheckHostIP: no other key may be known for the address.
func (k *hostKeyCheck) verifyAddress(name hostkeys.Name, key ssh.PublicKey) error {
	host := k.client.hostKeys.Lookup(k.files(), name)
	host, err := k.ask(host, name)
	if err != nil {
		return err
	}
	err = host.Check(key, k.rules, time.Now())
	if changed, ok := errors.AsType[*hostkeys.Changed](err); ok && !k.client.options.InsecureHostKeys {
		return changedError(err, changed)
	}
	return nil
}

// changedError names the files to correct, which may not be the user's.
func changedError(err error, changed *hostkeys.Changed) error {
	step := "remove the old one: " + removeCommand(changed)
	if changed.Revoked {
		step = "give the host a new key: this one is not to be used again"
	}
	return remote.Errorf(remote.HostKeyChanged, "%w; nothing was sent", err).WithNext(remote.ChangedKeyStep(step))
}

func removeCommand(changed *hostkeys.Changed) string {
	var commands []string
	for _, place := range changed.Known {
		file := remote.Quote(place.File)
		command := "ssh-keygen -R " + remote.Quote(changed.Name) + " -f " + file
		switch {
		case !filepath.IsAbs(place.File): // from KnownHostsCommand
			command = "correct " + place.String()
		case strings.HasPrefix(place.File, "/etc/"):
			command = "sudo " + command + " && sudo chmod a+r " + file // OpenSSH before 8.4 makes it private
		}
		if !slices.Contains(commands, command) {
			commands = append(commands, command)
		}
	}
	return strings.Join(commands, " && ")
}

func (c *Client) checkResult(k *hostKeyCheck, key ssh.PublicKey, err error) error {
	t := k.target
	if err == nil {
		return nil
	}
	if c.options.InsecureHostKeys {
		c.options.Log.Warn().Str("host", t.Host).Str("fingerprint", hostkeys.Fingerprint(key)).
			Msg("INSECURE: the host key is accepted without a check, as requested for this run: " + err.Error())
		return nil
	}
	if changed, ok := errors.AsType[*hostkeys.Changed](err); ok {
		return changedError(err, changed)
	}
	unknown, ok := errors.AsType[*hostkeys.Unknown](err)
	if t.AcceptNew && !(len(t.KnownHostsCommand) > 0 && ok && unknown.Refused) { // then ssh adds no key
		added := c.hostKeys.Accept(k.host, key, k.rules, time.Now())
		if changed, ok := errors.AsType[*hostkeys.Changed](added); ok { // another key was added meanwhile
			return changedError(added, changed)
		}
		if added != nil {
			return remote.Errorf(remote.HostKey, "%w; accept-new: %w", err, added)
		}
		return nil
	}
	_, missing := os.Stat(knownToAll)
	add := k.addCommand(key, missing == nil && slices.Contains(k.files(), knownToAll))
	return remote.Errorf(remote.HostKey, "%w", err).
		WithNext("check the fingerprint with the host's owner, then add the key to known_hosts: " + add)
}

func (k *hostKeyCheck) addCommand(key ssh.PublicKey, toAll bool) string {
	t, add := k.target, " | sudo tee -a "+knownToAll
	if !toAll {
		add = " >> ~/.ssh/known_hosts"
		if len(t.UserKnownHosts) > 0 {
			add = " >> " + remote.Quote(t.UserKnownHosts[0])
		}
	}
	switch {
	case len(t.ProxyJump) == 0 && t.ProxyCommand == "" && t.HostKeyAlias == "":
		return "ssh-keyscan -p " + strconv.Itoa(t.Port) + " " + remote.Quote(t.HostName) + add
	case toAll: // ssh only writes the user's own file
		line := k.name.String() + " " + strings.TrimSpace(string(ssh.MarshalAuthorizedKey(hostkeys.Plain(key))))
		return "echo " + remote.Quote(line) + add
	default:
		return "ssh -o StrictHostKeyChecking=ask " + remote.Quote(t.Host) + " true"
	}
}

// loginKey checks the first host key; later key exchanges must show the same (sshconnect.c, verify_host_key). After the
// login only its hash is kept, as there are thousands.
type loginKey struct {
	mu    sync.Mutex
	known func()        // called once the key is accepted
	check *hostKeyCheck // nil after the login
	sum   [sha256.Size]byte
}

var errOtherKey = errors.New("the host has shown another key than at the login")

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
		k.known()
	}
	return err
}

func (k *loginKey) loggedIn() {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.check, k.known = nil, nil
}
