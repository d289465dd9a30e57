package main

import (
	"cmp"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"
)

// hugeServers is how many processes have the hosts: each needs two file descriptors for a host.
const hugeServers = 4

// hugeFleet is a fleet of some thousand hosts in several processes, with its files in dir.
type hugeFleet struct {
	dir     string
	hosts   int
	servers []*served
}

func (b *bench) startHuge(ctx context.Context) (_ *hugeFleet, err error) {
	each := b.huge / hugeServers
	f := &hugeFleet{hosts: each * hugeServers}
	if f.dir, err = os.MkdirTemp("", "genv-bench-"); err != nil {
		return nil, err
	}
	var config, list strings.Builder
	list.WriteString("hosts:\n")
	for i := range hugeServers {
		prefix := fmt.Sprintf("sim%d", i)
		s, err := b.startFleet(ctx, "-many", strconv.Itoa(each), "-first", strconv.Itoa(i*each), "-prefix", prefix)
		if err != nil {
			f.end()
			return nil, err
		}
		f.servers = append(f.servers, s)
		fmt.Fprintf(&config, "Host %s-*\n\tInclude %s\n", prefix, filepath.Join(s.dir, "ssh_config"))
		fmt.Fprintf(&list, "  - %s\n", strings.Join(numbered(prefix, each), "\n  - "))
	}
	err = cmp.Or(os.WriteFile(f.config(), []byte(config.String()), 0o600), os.WriteFile(f.file(), []byte(list.String()), 0o600))
	if err != nil {
		f.end()
	}
	return f, err
}

func (f *hugeFleet) config() string { return filepath.Join(f.dir, "ssh_config") }
func (f *hugeFleet) file() string   { return filepath.Join(f.dir, "hosts.yaml") }

func (f *hugeFleet) end() {
	for _, s := range f.servers {
		s.end()
	}
	_ = os.RemoveAll(f.dir)
}

// hugeRows are a controller with as many hosts as the largest fleets have: how long it takes to
// connect, its cycles, and what it needs.
func (b *bench) hugeRows(ctx context.Context) ([]row, error) {
	f, err := b.startHuge(ctx)
	if err != nil {
		return nil, err
	}
	defer f.end()
	begun := time.Now()
	c, err := b.launch(ctx, f.config(), f.file(), 2*time.Second)
	if err != nil {
		return nil, err
	}
	defer c.end()
	if err := c.answered(f.hosts); err != nil {
		return nil, err
	}
	connected := row{
		what: fmt.Sprintf("%d hosts: connect to all", f.hosts), figure: brief(time.Since(begun)), goal: "≤ 60 s",
		detail: "from the start of the program to the end of the first cycle",
	}
	steady, err := c.steadyRows(f.hosts, 4*b.runs, "huge: ", "≤ 0.7 s", "≤ 120 µs")
	return append([]row{connected}, steady...), err
}
