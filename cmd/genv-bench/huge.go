package main

import (
	"cmp"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// hugeServers is how many processes have the hosts: each needs two file descriptors for a host.
const hugeServers = 4

// hugeFleet is a fleet of some thousand hosts in several processes. A twentieth of them is not in
// its hosts.yaml at first.
type hugeFleet struct {
	dir     string
	hosts   int
	servers []*served
}

func (b *bench) startHuge(ctx context.Context) (_ *hugeFleet, err error) {
	f := &hugeFleet{hosts: b.huge}
	if f.dir, err = os.MkdirTemp("", "genv-bench-"); err != nil {
		return nil, err
	}
	each := b.huge / hugeServers
	var config strings.Builder
	for i := range hugeServers {
		s, err := b.startFleet(ctx, "-many", strconv.Itoa(each), "-first", strconv.Itoa(i*each), "-prefix", prefixOf(i))
		if err != nil {
			f.end()
			return nil, err
		}
		f.servers = append(f.servers, s)
		fmt.Fprintf(&config, "Host %s-*\n\tInclude %s\n", prefixOf(i), filepath.Join(s.dir, "ssh_config"))
	}
	f.hosts = each * hugeServers
	if err = os.WriteFile(f.config(), []byte(config.String()), 0o600); err == nil {
		err = f.list(0, f.hosts*19/20)
	}
	if err != nil {
		f.end()
	}
	return f, err
}

func prefixOf(server int) string { return fmt.Sprintf("sim%d", server) }

func (f *hugeFleet) config() string { return filepath.Join(f.dir, "ssh_config") }
func (f *hugeFleet) file() string   { return filepath.Join(f.dir, "hosts.yaml") }

// list writes the hosts from one index to another into hosts.yaml.
func (f *hugeFleet) list(from, to int) error {
	var text strings.Builder
	text.WriteString("hosts:\n")
	each := f.hosts / hugeServers
	for i := from; i < to; i++ {
		fmt.Fprintf(&text, "  - %s\n", hostName(prefixOf(i/each), i%each))
	}
	return os.WriteFile(f.file(), []byte(text.String()), 0o600)
}

func (f *hugeFleet) end() {
	for _, s := range f.servers {
		s.end()
	}
	_ = os.RemoveAll(f.dir)
}

// hugeRows are a controller with as many hosts as the largest fleets have: how long it takes to
// connect, its cycles, what it needs, and what changes of the fleet cost.
func (b *bench) hugeRows(ctx context.Context) ([]row, error) {
	f, err := b.startHuge(ctx)
	if err != nil {
		return nil, err
	}
	defer f.end()
	hosts := f.hosts * 19 / 20
	begun := time.Now()
	c, err := b.launch(ctx, f.config(), f.file(), 2*time.Second)
	if err != nil {
		return nil, err
	}
	defer c.end()
	if err := c.answered(hosts); err != nil {
		return nil, err
	}
	connected := time.Since(begun)
	steady, err := c.steadyCycles(hosts, 4*b.runs, "huge: ", "≤ 0.7 s", "≤ 120 µs")
	if err := cmp.Or(err, c.cmd.Process.Signal(syscall.SIGCONT)); err != nil {
		return nil, err
	}
	changed, hosts, err := f.exchange(c)
	if err != nil {
		return nil, err
	}
	return append([]row{
		{what: fmt.Sprintf("%d hosts: connect to all", f.hosts*19/20), figure: brief(connected), goal: "≤ 60 s", detail: "from the start of the program to the end of the first cycle"},
		{what: "huge: hosts.yaml changed, then SIGHUP", figure: brief(changed), detail: fmt.Sprintf("until all of %d hosts answer, a twentieth of them new; as many as half of that left", hosts)},
	}, steady...), nil
}

// exchange replaces hosts.yaml: a fortieth of the fleet leaves, and a twentieth is new.
func (f *hugeFleet) exchange(c *controlled) (took time.Duration, hosts int, err error) {
	from := f.hosts / 40
	hosts = f.hosts - from
	begun := time.Now()
	if err := cmp.Or(f.list(from, f.hosts), c.cmd.Process.Signal(syscall.SIGHUP)); err != nil {
		return 0, 0, err
	}
	err = c.answered(hosts)
	return time.Since(begun), hosts, err
}
