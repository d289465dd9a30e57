// Package nss finds addresses and users as other programs of this machine do: by
// nsswitch.conf(5), which may name mDNS, sssd or LDAP. A program without cgo only
// reads /etc/hosts, asks DNS and reads /etc/passwd. What it doesn't find there,
// this package asks getent(1), which every glibc system has.
//
//	names := nss.New()
//	addresses, err := names.Addresses(ctx, "ip", "printer.local")
//	user, err := names.UserOf(ctx, os.Getuid())
//
// Answers of getent are kept for a few seconds. Where there is no getent, or it
// doesn't answer in time, the result is that of Go's own search.
package nss

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"
)

const (
	timeout   = 5 * time.Second  // of one getent
	keptFor   = 10 * time.Second // an answer
	maxAtOnce = 8                // getent processes
)

// Service asks getent. It is safe for concurrent use.
type Service struct {
	places chan struct{}

	mu      sync.Mutex
	answers map[question]*answer
}

type question struct{ database, key string }

// answer is valid once done is closed.
type answer struct {
	done  chan struct{}
	until time.Time
	lines []string
	err   error
}

// New starts nothing.
func New() *Service {
	return &Service{places: make(chan struct{}, maxAtOnce), answers: map[question]*answer{}}
}

// Addresses are those of a host, or an address itself, in the order in which they
// should be tried. The network is ip, ip4 or ip6. The error is that of Go's resolver.
func (s *Service) Addresses(ctx context.Context, network, host string) ([]netip.Addr, error) {
	found, err := s.find(ctx, network, host)
	var usable []netip.Addr
	for _, a := range found {
		if a = a.Unmap(); !slices.Contains(usable, a) && (network == "ip" || a.Is4() == (network == "ip4")) {
			usable = append(usable, a)
		}
	}
	if err == nil && len(usable) == 0 {
		err = fmt.Errorf("%s has no address of the family that AddressFamily asks for", host)
	}
	return usable, err
}

// find asks getent where Go's resolver has no answer. Go's resolver would drop the
// zone of an IPv6 address.
func (s *Service) find(ctx context.Context, network, host string) ([]netip.Addr, error) {
	if literal, err := netip.ParseAddr(host); err == nil {
		return []netip.Addr{literal}, nil
	}
	own, cancel := halfOf(ctx) // a DNS server that is silent leaves time for getent
	found, err := net.DefaultResolver.LookupNetIP(own, network, host)
	cancel()
	if err != nil && ctx.Err() == nil {
		if lines, failed := s.ask(ctx, question{"ahosts", host}); failed == nil {
			return parseHosts(lines), nil
		}
	}
	return found, err
}

// halfOf has half of the time that is left in ctx.
func halfOf(ctx context.Context) (context.Context, context.CancelFunc) {
	deadline, ok := ctx.Deadline()
	if !ok {
		return context.WithTimeout(ctx, timeout)
	}
	return context.WithTimeout(ctx, time.Until(deadline)/2)
}

// parseHosts reads lines of `getent ahosts`: an address, the kind of socket, and on
// the first one the name. Each address comes once for each kind.
func parseHosts(lines []string) (found []netip.Addr) {
	for _, line := range lines {
		first, _, _ := strings.Cut(line, " ")
		if a, err := netip.ParseAddr(first); err == nil {
			found = append(found, a)
		}
	}
	return found
}

// User is an account.
type User struct {
	UID, GID   int
	Name, Home string
}

// ErrNoUser is wrapped when no account was found: the system has none, or getent failed
// or did not answer in time.
var ErrNoUser = errors.New("no such account was found")

// UserOf is the account of a uid. $USER and $HOME don't count.
func (s *Service) UserOf(ctx context.Context, uid int) (User, error) {
	return s.userWith(ctx, strconv.Itoa(uid), func(u User) bool { return u.UID == uid })
}

// UserNamed is the account with a name.
func (s *Service) UserNamed(ctx context.Context, name string) (User, error) {
	return s.userWith(ctx, name, func(u User) bool { return u.Name == name })
}

// userWith looks for an account in /etc/passwd, and then asks getent for the key.
// Package os/user is not used: without cgo it makes an account of $USER and $HOME for
// a user of this process who is not in the file.
func (s *Service) userWith(ctx context.Context, key string, wanted func(User) bool) (User, error) {
	content, _ := os.ReadFile("/etc/passwd") // without it getent is asked
	for line := range strings.Lines(string(content)) {
		if u, ok := parseUser(strings.TrimSuffix(line, "\n")); ok && wanted(u) {
			return u, nil
		}
	}
	u, err := s.user(ctx, key)
	if err == nil && !wanted(u) {
		err = fmt.Errorf("%w: %s", ErrNoUser, key)
	}
	return u, err
}

func (s *Service) user(ctx context.Context, key string) (User, error) {
	lines, err := s.ask(ctx, question{"passwd", key})
	if err != nil {
		return User{}, fmt.Errorf("%w: %s: %w", ErrNoUser, key, err)
	}
	for _, line := range lines {
		if u, ok := parseUser(line); ok {
			return u, nil
		}
	}
	return User{}, fmt.Errorf("%w: %s", ErrNoUser, key)
}

// parseUser reads a line of passwd(5).
func parseUser(line string) (User, bool) {
	fields := strings.Split(line, ":")
	if len(fields) != 7 || fields[0] == "" {
		return User{}, false
	}
	uid, err := strconv.Atoi(fields[2])
	gid, noGroup := strconv.Atoi(fields[3])
	return User{UID: uid, GID: gid, Name: fields[0], Home: fields[5]}, err == nil && noGroup == nil && uid >= 0 && gid >= 0
}

// ask returns the lines that getent prints. Callers with the same question share
// one process.
func (s *Service) ask(ctx context.Context, q question) ([]string, error) {
	s.mu.Lock()
	a := s.answers[q]
	mine := a == nil || !a.until.IsZero() && time.Now().After(a.until)
	if mine {
		a = &answer{done: make(chan struct{})}
		s.answers[q] = a
	}
	s.mu.Unlock()
	if mine {
		lines, err := s.getent(ctx, q)
		s.mu.Lock()
		a.lines, a.err, a.until = lines, err, time.Now().Add(keptFor)
		if ctx.Err() != nil { // it says nothing about the name
			delete(s.answers, q)
		}
		s.mu.Unlock()
		close(a.done)
	}
	select {
	case <-a.done:
		return a.lines, a.err
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
}

// getent runs `getent DATABASE KEY`: its words are not part of a shell command.
func (s *Service) getent(ctx context.Context, q question) ([]string, error) {
	select {
	case s.places <- struct{}{}:
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
	defer func() { <-s.places }()
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	command := exec.CommandContext(ctx, "getent", q.database, "--", q.key)
	command.WaitDelay = time.Second
	out, err := command.Output()
	if err != nil {
		return nil, fmt.Errorf("getent %s: %w", q.database, err)
	}
	return strings.Split(strings.TrimRight(string(out), "\n"), "\n"), nil
}
