package doctor

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/netip"
	"strings"
	"syscall"

	"github.com/seed-3119e985/genv/remote"
	"github.com/seed-3119e985/genv/remote/sshclient"
	"github.com/seed-3119e985/genv/snapshot/doctor"
	"github.com/seed-3119e985/genv/snapshot/text"
)

// resolve makes the check of the name, without a connection.
func (e *examination) resolve(ctx context.Context) bool {
	way, err := e.Client.Way(ctx, e.host)
	if err == nil || remote.ClassOf(err) != remote.Configuration {
		e.Way = &way
	}
	switch {
	case err != nil && remote.ClassOf(err) == remote.Unreachable:
		e.add(problem(doctor.NameResolution, doctor.Failed, "no-such-name", err.Error(),
			"correct the name, give the host an `address:` in hosts.yaml or a HostName in ssh_config, or check the resolver: getent ahosts NAME"))
	case err != nil:
		e.fail(doctor.NameResolution, err)
	case way.Direct():
		e.add(doctor.Good(doctor.NameResolution, "%s", addresses(way)))
	}
	if err != nil {
		e.failedWith(err)
	}
	return err == nil
}

func (e *examination) failedWith(err error) {
	f := remote.FailureOf(e.host.Name, err)
	e.Failure = &f
}

// reached adds what a login proves.
func (e *examination) reached(peer remote.Peer) {
	way := e.Way
	e.Address = peer.Address
	if way.Direct() {
		e.add(doctor.Good(doctor.TCP, "connected to %s", cmp.Or(peer.Address, "unknown")))
	} else {
		through := "through a ProxyCommand"
		if hops := way.Settings.ProxyJump; way.OpenSSH {
			through = "by ssh(1)"
		} else if len(hops) > 0 {
			through = "through the jump host " + text.OneLine(strings.Join(hops, ","))
		}
		e.add(doctor.Good(doctor.NameResolution, "%s, resolved %s", way.Settings.HostName, through),
			doctor.Good(doctor.TCP, "connected %s", through))
	}
	e.add(e.keyOf(peer))
}

func (e *examination) keyOf(peer remote.Peer) doctor.Check {
	if e.Insecure {
		return problem(doctor.HostKey, doctor.Warning, "host-key-unchecked", peer.HostKey+" was not checked (--insecure-ignore-host-keys)",
			"run it again without --insecure-ignore-host-keys")
	}
	return doctor.Good(doctor.HostKey, "%s is the known one", cmp.Or(peer.HostKey, "unknown"))
}

// unreached adds what a failed connection shows.
func (e *examination) unreached(err error) {
	way := e.Way
	class := remote.ClassOf(err)
	peer, shown := sshclient.Shown(err)
	switch {
	case class == remote.Cancelled:
		e.fail(doctor.TCP, err)
	case class == remote.HostKey, class == remote.HostKeyChanged:
		e.answered()
		e.fail(doctor.HostKey, err)
	case way.Direct() && (shown || class == remote.Auth):
		e.answered()
		e.add(e.keyOf(peer))
		e.fail(doctor.Login, err)
	case class == remote.Auth, class == remote.OpenSSH, class == remote.Configuration:
		e.fail(doctor.Login, err)
	default:
		e.add(noConnection(err))
	}
}

// answered adds that an SSH server answered, if it must have been the host's.
func (e *examination) answered() {
	if e.Way.Direct() {
		e.add(doctor.Good(doctor.TCP, "an SSH server answers at port %d", e.Way.Settings.Port))
	}
}

// noConnection is why no SSH server answered.
func noConnection(err error) doctor.Check {
	switch {
	case errors.Is(err, syscall.ECONNREFUSED):
		return problem(doctor.TCP, doctor.Failed, "connection-refused", err.Error(), "start sshd on the host (`systemctl start ssh`), or correct the port: nothing listens there")
	case errors.Is(err, syscall.EHOSTUNREACH), errors.Is(err, syscall.ENETUNREACH):
		return problem(doctor.TCP, doctor.Failed, "no-route", err.Error(), "check that the host is up, and the network between: ping HOST; ip route get ADDRESS")
	case remote.ClassOf(err) == remote.Timeout:
		return problem(doctor.TCP, doctor.Failed, "silent", err.Error(), "something listens there and doesn't finish an SSH login: look at sshd and the load on the host's console")
	case remote.ClassOf(err) == remote.Unreachable && errors.Is(err, context.DeadlineExceeded):
		return problem(doctor.TCP, doctor.Failed, "no-answer", err.Error(), "check that the host is up and that no firewall drops the packets; raise --timeout if the network is slow")
	}
	return failed(doctor.TCP, err)
}

// addresses are those to which the host's name leads.
func addresses(way sshclient.Way) string {
	words := make([]string, len(way.Addresses))
	for i, a := range way.Addresses {
		words[i] = netip.AddrPortFrom(a, uint16(way.Settings.Port)).String()
	}
	return fmt.Sprintf("%s is %s", way.Settings.HostName, strings.Join(words, ", "))
}
