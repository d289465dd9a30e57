package main

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/seed-3119e985/genv/remote/testfleet/sshd"
)

// atOnce is how many hosts each peer works on at a time.
const atOnce = 64

// peer is another way to run a command on every host.
type peer struct {
	name string
	run  func(ctx context.Context, command string) error
}

// peersOn are those that this machine has.
func (b *bench) peersOn(fleet *sshd.Fleet) []peer {
	names, options := b.names(), "-F "+fleet.SSHConfig()
	list, fan := strings.Join(names, ","), strconv.Itoa(atOnce)
	peers := []peer{{"ssh", func(ctx context.Context, command string) error { return sshFanOut(ctx, fleet, names, command) }}}
	if path, err := exec.LookPath("clush"); err == nil {
		peers = append(peers, peer{"clush", func(ctx context.Context, command string) error {
			return quietly(exec.CommandContext(ctx, path, "-w", list, "-f", fan, "-o", options, "-L", command))
		}})
	}
	if path, err := exec.LookPath("pdsh"); err == nil {
		// pdsh's ssh reads PDSH_SSH_ARGS_APPEND; host names are looked up by ssh.
		peers = append(peers, peer{"pdsh", func(ctx context.Context, command string) error {
			cmd := exec.CommandContext(ctx, path, "-R", "ssh", "-w", list, "-f", fan, command)
			cmd.Env = append(os.Environ(), "PDSH_SSH_ARGS_APPEND="+options)
			return quietly(cmd)
		}})
	}
	return peers
}

// sshFanOut is what an administrator would script: the same command on every
// host, some at a time.
func sshFanOut(ctx context.Context, fleet *sshd.Fleet, names []string, command string) error {
	var group errgroup.Group
	group.SetLimit(atOnce)
	for _, name := range names {
		group.Go(func() error { return quietly(exec.CommandContext(ctx, "ssh", "-F", fleet.SSHConfig(), name, command)) })
	}
	return group.Wait()
}

func quietly(cmd *exec.Cmd) error {
	out, err := cmd.CombinedOutput()
	if err != nil {
		return fmt.Errorf("%s: %w: %s", filepath.Base(cmd.Path), err, out[:min(len(out), 2000)])
	}
	return nil
}

// coldRows is one command on every host, from nothing.
func (b *bench) coldRows(ctx context.Context, fleet *sshd.Fleet) ([]row, error) {
	return b.against(ctx, fleet, contest{"cold one-shot", "≥ 4×", "genv usage snapshot --type devices"}, timed(func() error {
		return quietly(exec.CommandContext(ctx, b.genv, "remote", "-F", fleet.SSHConfig(), "-H", strings.Join(b.names(), ","), "devices"))
	}))
}

// steadyRows is one cycle of enforcement, with everything that hosts do for it.
func (b *bench) steadyRows(ctx context.Context, fleet *sshd.Fleet) ([]row, error) {
	c, err := b.startController(ctx, fleet.SSHConfig(), b.names(), 500*time.Millisecond)
	if err != nil {
		return nil, err
	}
	defer c.end()
	return b.against(ctx, fleet, contest{"steady cycle", "≥ 50×", "sudo -n genv usage snapshot"}, func() (time.Duration, error) {
		cycles, err := c.cycles(5)
		return quantile(cycles, 0.5), err
	})
}

// contest is what is measured, its goal, and the command that peers run on each host.
type contest struct{ what, goal, command string }

// against measures ours and every peer in turn. While the peers run, a
// controller of ours is stopped.
func (b *bench) against(ctx context.Context, fleet *sshd.Fleet, c contest, ours func() (time.Duration, error)) ([]row, error) {
	peers := b.peersOn(fleet)
	things := []func() (time.Duration, error){ours}
	for _, p := range peers {
		things = append(things, timed(func() error { return p.run(ctx, c.command) }))
	}
	medians, err := b.inTurn(things)
	if err != nil {
		return nil, err
	}
	var rows []row
	for i, p := range peers {
		own, other := medians[0], medians[i+1]
		rows = append(rows, row{
			what: fmt.Sprintf("%s, %d hosts of real sshd, against %s", c.what, b.hosts, p.name), ratio: true,
			figure: fmt.Sprintf("%.1f×", other.Seconds()/own.Seconds()), detail: fmt.Sprintf("%s against %s", brief(other), brief(own)),
		})
	}
	rows[0].goal = c.goal
	return rows, nil
}
