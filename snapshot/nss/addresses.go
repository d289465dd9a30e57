package nss

import (
	"context"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/sync/singleflight"
)

const (
	resolveWithin = 5 * time.Second  // of one getent
	answerKeptFor = 10 * time.Second // by getent
	maxResolving  = 8                // getent processes
)

// Resolver finds addresses by Go's resolver and, if it fails, getent. It is safe for concurrent use.
type Resolver struct {
	places chan struct{}
	asking singleflight.Group // by host

	mu      sync.Mutex
	answers map[string]resolved // by host
}

type resolved struct {
	until time.Time
	found []netip.Addr
	err   error
}

// NewResolver returns a Resolver. It starts nothing.
func NewResolver() *Resolver {
	return &Resolver{places: make(chan struct{}, maxResolving), answers: map[string]resolved{}}
}

// Addresses returns a host's addresses, or an address itself, in the order to try. network is ip, ip4 or ip6. The error
// is Go's resolver's.
func (r *Resolver) Addresses(ctx context.Context, network, host string) ([]netip.Addr, error) {
	found, err := r.find(ctx, network, host)
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

// find asks getent if Go's resolver has no answer. Go's resolver would drop the zone of an IPv6 address.
func (r *Resolver) find(ctx context.Context, network, host string) ([]netip.Addr, error) {
	if literal, err := netip.ParseAddr(host); err == nil {
		return []netip.Addr{literal}, nil
	}
	own, cancel := halfOf(ctx) // so that a silent DNS server leaves time for getent
	found, err := net.DefaultResolver.LookupNetIP(own, network, host)
	cancel()
	if err != nil && ctx.Err() == nil {
		if others, failed := r.ask(ctx, host); failed == nil {
			return others, nil
		}
	}
	return found, err
}

func halfOf(ctx context.Context) (context.Context, context.CancelFunc) {
	deadline, ok := ctx.Deadline()
	if !ok {
		return context.WithTimeout(ctx, resolveWithin)
	}
	return context.WithTimeout(ctx, time.Until(deadline)/2)
}

// parseHosts parses the addresses at the beginning of lines of `getent ahosts`, one for each kind of socket.
func parseHosts(out []byte) (found []netip.Addr) {
	for line := range strings.Lines(string(out)) {
		first, _, _ := strings.Cut(strings.TrimSuffix(line, "\n"), " ")
		if a, err := netip.ParseAddr(first); err == nil {
			found = append(found, a)
		}
	}
	return found
}

// ask returns getent's addresses. Callers with the same question share one process.
func (r *Resolver) ask(ctx context.Context, host string) ([]netip.Addr, error) {
	answer := r.asking.DoChan(host, func() (any, error) {
		r.mu.Lock()
		a, known := r.answers[host]
		r.mu.Unlock()
		if known && time.Now().Before(a.until) {
			return a.found, a.err
		}
		found, err := r.getent(ctx, host)
		r.mu.Lock()
		defer r.mu.Unlock()
		if r.answers[host] = (resolved{time.Now().Add(answerKeptFor), found, err}); ctx.Err() != nil {
			delete(r.answers, host) // it is not about the name
		}
		return found, err
	})
	select {
	case a := <-answer:
		return a.Val.([]netip.Addr), a.Err
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
}

func (r *Resolver) getent(ctx context.Context, host string) ([]netip.Addr, error) {
	select {
	case r.places <- struct{}{}:
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
	defer func() { <-r.places }()
	ctx, cancel := context.WithTimeout(ctx, resolveWithin)
	defer cancel()
	out, err := Getent(ctx, "ahosts", host)
	if err != nil {
		return nil, fmt.Errorf("getent ahosts: %w", err)
	}
	return parseHosts(out), nil
}
