package sshclient

import (
	"cmp"
	"context"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"strconv"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/seed-3119e985/genv/remote"
)

// jitter is 75 to 125 per cent of d, so that many waits don't end together.
func jitter(d time.Duration) time.Duration {
	return d*3/4 + rand.N(d/2+1) //nolint:gosec // spreads load, guards no secret
}

// How many logins may be under way to one address, and through one jump host
// (sshd_config(5), MaxStartups).
const (
	dialsPerAddress = 8
	dialsPerJump    = 32
)

// dialLimits limit the logins under way, by the name of an address or jump host.
type dialLimits struct{ slots sync.Map } // of chan struct{}

// acquire waits for a slot and returns how to release it.
func (d *dialLimits) acquire(ctx context.Context, name string, limit int) (release func(), err error) {
	value, _ := d.slots.LoadOrStore(name, make(chan struct{}, limit))
	slots := value.(chan struct{})
	select {
	case slots <- struct{}{}:
		return func() { <-slots }, nil
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
}

// spareDescriptors are for files, agents and child processes.
const spareDescriptors = 128

// EnoughDescriptors returns an error if the limit of open files is too low for
// connections to that many hosts. Package os has raised the soft limit to the hard
// limit before.
func EnoughDescriptors(hosts int) error {
	var limit unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &limit); err != nil {
		return remote.Errorf(remote.Configuration, "cannot read the limit of open files: %w", err)
	}
	need := uint64(hosts) + spareDescriptors
	if limit.Cur >= need {
		return nil
	}
	return remote.Errorf(remote.Configuration, "%d hosts need %d open files and the limit is %d: run `ulimit -n %d` first", hosts, need, limit.Cur, need)
}

// portRange is the file with the first and the last of the local ports from which the
// kernel chooses.
const portRange = "/proc/sys/net/ipv4/ip_local_port_range"

// EnoughPorts returns an error if the kernel has too few local ports for connections to
// the hosts. Where it doesn't say how many it has, they are enough.
func EnoughPorts(hosts []remote.Host) error {
	if content, err := os.ReadFile(portRange); err == nil {
		return enoughPorts(hosts, string(content))
	}
	return nil
}

// enoughPorts is EnoughPorts with the content of portRange. Connections to different
// addresses or ports may have the same local port, so only hosts with the same ones count
// together. All hosts behind a jump host share one connection to it.
func enoughPorts(hosts []remote.Host, content string) error {
	var first, last int
	if _, err := fmt.Sscan(content, &first, &last); err != nil || last < first {
		return nil //nolint:nilerr // a connection without a port has an error of its own
	}
	need, most := make(map[string]int), ""
	for _, h := range hosts {
		to := net.JoinHostPort(cmp.Or(h.Address, h.Name), strconv.Itoa(cmp.Or(h.Port, 22)))
		if need[to]++; need[to] > need[most] {
			most = to
		}
	}
	ports := last - first + 1
	if need[most] <= ports {
		return nil
	}
	return remote.Errorf(remote.Configuration, "%d hosts at %s need %d local ports and there are %d: extend net.ipv4.ip_local_port_range with sysctl(8) first",
		need[most], most, need[most], ports)
}
