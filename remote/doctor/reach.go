package doctor

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
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
		e.way = &way
	}
	if err != nil {
		e.fail(doctor.NameResolution, err, doctor.If(errors.Is(err, remote.ErrNoNames), "no-name-service", "%v", err),
			doctor.If(remote.ClassOf(err) == remote.Unreachable, "no-such-name", "%v", err))
	} else if way.Direct() {
		e.add(doctor.Good(doctor.NameResolution, "%s", addresses(way)))
	}
	return err == nil
}

// reached adds what a login proves.
func (e *examination) reached(peer remote.Peer) {
	e.Address = peer.Address
	if e.way.Direct() {
		e.add(doctor.Good(doctor.TCP, "connected to %s", cmp.Or(peer.Address, "unknown")))
	} else {
		through := "through a ProxyCommand"
		if hops := e.way.Settings.ProxyJump; e.way.OpenSSH {
			through = "by ssh(1)"
		} else if len(hops) > 0 {
			through = "through the jump host " + text.OneLine(strings.Join(hops, ","))
		}
		e.add(doctor.Good(doctor.NameResolution, "%s, resolved %s", e.way.Settings.HostName, through),
			doctor.Good(doctor.TCP, "connected %s", through))
	}
	e.add(e.keyOf(peer))
}

func (e *examination) keyOf(peer remote.Peer) doctor.Check {
	return doctor.First(doctor.HostKey,
		doctor.If(e.Insecure, "host-key-unchecked", "%s was not checked (--insecure-ignore-host-keys)", peer.HostKey),
		doctor.If(true, "", "%s is the known one", cmp.Or(peer.HostKey, "unknown")))
}

// unreached adds what a failed connection shows.
func (e *examination) unreached(err error) {
	class := remote.ClassOf(err)
	peer, shown := sshclient.Shown(err)
	switch {
	case class == remote.Cancelled:
		e.fail(doctor.TCP, err)
	case class == remote.HostKey, class == remote.HostKeyChanged:
		e.answered()
		e.fail(doctor.HostKey, err)
	case e.way.Direct() && (shown || class == remote.Auth):
		e.answered()
		e.add(e.keyOf(peer))
		e.fail(doctor.Login, err)
	case class == remote.Auth, class == remote.OpenSSH, class == remote.Configuration:
		e.fail(doctor.Login, err)
	default:
		is := func(cause error) bool { return errors.Is(err, cause) }
		e.fail(doctor.TCP, err,
			doctor.If(is(syscall.ECONNREFUSED), "connection-refused", "%v", err),
			doctor.If(is(syscall.EHOSTUNREACH) || is(syscall.ENETUNREACH), "no-route", "%v", err),
			doctor.If(class == remote.Timeout, "silent", "%v", err),
			doctor.If(class == remote.Unreachable && is(context.DeadlineExceeded), "no-answer", "%v", err))
	}
}

// answered adds that an SSH server answered, if it must have been the host's.
func (e *examination) answered() {
	if e.way.Direct() {
		e.add(doctor.Good(doctor.TCP, "an SSH server answers at port %d", e.way.Settings.Port))
	}
}

// addresses are those to which the host's name leads.
func addresses(way sshclient.Way) string {
	words := make([]string, len(way.Addresses))
	for i, a := range way.Addresses {
		words[i] = netip.AddrPortFrom(a, uint16(way.Settings.Port)).String()
	}
	return fmt.Sprintf("%s is %s", way.Settings.HostName, strings.Join(words, ", "))
}

// checkSudo judges what sudo does for the login: it was tried.
func (e *examination) checkSudo(s *survey) doctor.Check {
	t := &s.trial
	path, account := cmp.Or(t.Genv, remote.DefaultGenv), remote.SudoersAccount(s.user, s.uid)
	step := remote.SudoStep(remote.SudoRefused, account, path)
	refusal := t.Refusal()
	if refusal == nil || e.host.NoSudo {
		refusal = &remote.Error{Err: errors.New("")}
	}
	allowed, missing := coverage(t)
	covered := "covers usage " + allowed + " of " + path
	check := doctor.First(doctor.Sudo,
		doctor.If(e.host.NoSudo && s.uid == "0", "", "not needed: the login is root"),
		doctor.If(e.host.NoSudo, "no-root", "genv runs without root (`sudo: false`): nothing can be enforced").
			Next("remove `sudo: false` from hosts.yaml, and write into sudoers: "+remote.SudoersLine(account, path)),
		doctor.If(s.sudoTook >= sudoSlow, "sudo-slow", "`sudo -n -l` took about %s", s.sudoTook),
		doctor.If(t.UID == "", doctor.Unsure, "sudo was not tried"),
		doctor.If(t.NeedsTTY && t.Runs == "", "sudo-requires-tty", "%v", refusal.Err).Next(refusal.Next),
		doctor.If(t.Genv == "" && t.Lists && t.Runs == "", "", "sudo answers, and no genv was found to try"),
		doctor.If(allowed != "" && refusal.Class == remote.SudoRefused, doctor.Cause(remote.SudoRefused),
			"%s, and not %s", covered, missing).Next(step),
		doctor.If(refusal.Class != "", doctor.Cause(refusal.Class), "%v", refusal.Err).Next(refusal.Next),
		doctor.If(!t.Lists, "", "runs usage serve of %s, and lists nothing else without a password (listpw)", path),
		doctor.If(missing != "", doctor.Cause(remote.SudoRefused), "%s, and not %s", covered, missing).Next(step),
		doctor.If(slices.Contains(t.Allows, remote.AllowsEverything), "sudo-covers-everything",
			"covers every command, so the account is root").
			Next("give the controller an account of its own, and "+step),
		doctor.If(slices.Contains(t.Allows, remote.AllowsAllOfGenv), "sudo-covers-all-of-genv",
			"covers all of %s, which can run any program as root (`genv lock`)", path).Next(step),
		doctor.If(true, "", "%s", covered))
	if e.host.Personal && check.NextStep != "" {
		check.NextStep = remote.PersonalStep
	}
	return check
}

// coverage is what sudo allows of that which a controller needs, and what it doesn't.
func coverage(t *remote.Trial) (allowed, missing string) {
	found := map[bool][]string{}
	for _, command := range []string{"snapshot", "execute", "serve"} {
		has := slices.Contains(t.Allows, "usage "+command) || command == "serve" && t.Runs != ""
		found[has] = append(found[has], command)
	}
	return strings.Join(found[true], ", "), strings.Join(found[false], ", ")
}
