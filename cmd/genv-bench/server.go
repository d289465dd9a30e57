package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"time"

	"github.com/seed-3119e985/genv/remote/agent"
	"github.com/seed-3119e985/genv/remote/testfleet"
	"github.com/seed-3119e985/genv/remote/testfleet/gpus"
	"github.com/seed-3119e985/genv/remote/testfleet/sshd"
	"github.com/seed-3119e985/genv/snapshot"
	"github.com/seed-3119e985/genv/snapshot/nvidiasmi"
)

// serverRows is what a host pays: genv's own processor time, without that of
// nvidia-smi, whose stand-in here says nothing of the real one.
func (b *bench) serverRows(ctx context.Context, _ *sshd.Fleet) (rows []row, err error) {
	dir, err := os.MkdirTemp("", "genv-bench-")
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	m, err := inhabited(ctx, dir)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, m.Close()) }()
	kept, err := b.keptSnapshots(ctx, m, 100*b.runs)
	if err != nil {
		return nil, err
	}
	single, err := b.singleSnapshots(ctx, m, 10*b.runs)
	if err != nil {
		return nil, err
	}
	return []row{
		{
			what: "a host: CPU for an unchanged snapshot, beyond nvidia-smi", figure: brief(kept.own), goal: "≤ 1 ms",
			detail: fmt.Sprintf("genv usage serve, 4 environments, 8 processes; the stand-in for nvidia-smi took %s", brief(kept.children)),
		},
		{
			what: "a host: CPU of `genv usage snapshot`, beyond nvidia-smi", figure: brief(single.own), goal: "≤ 5 ms",
			detail: fmt.Sprintf("start of the program included; the stand-in for nvidia-smi, twice, took %s", brief(single.children)),
		},
	}, nil
}

// inhabited is a machine with four environments, and in each two devices with a
// process on either. Root's processes get an owner as a person's would have.
func inhabited(ctx context.Context, dir string) (*testfleet.Machine, error) {
	smi := filepath.Join(dir, "nvidia-smi")
	build := exec.CommandContext(ctx, "go", "build", "-buildvcs=false", "-o", smi, "github.com/seed-3119e985/genv/remote/testfleet/gpus/nvidia-smi")
	if err := quietly(build); err != nil {
		return nil, err
	}
	m, err := testfleet.NewMachine(filepath.Join(dir, "host"), gpus.H100s("bench", 8), smi)
	if err != nil {
		return nil, err
	}
	user := ""
	if os.Getuid() == 0 {
		user = "nobody"
		m.Account = func(string) (testfleet.Account, error) { return testfleet.Account{UID: 65534, Home: "/"}, nil }
	}
	for i := range snapshot.DeviceIndex(4) {
		env, err := m.Activate(testfleet.Environment{User: user, Devices: []snapshot.DeviceIndex{2 * i, 2*i + 1}})
		if err != nil {
			return nil, errors.Join(err, m.Close())
		}
		for k := range snapshot.DeviceIndex(2) {
			if _, err := m.StartJob(testfleet.Job{User: user, Env: []string{env.Var()}, Uses: []testfleet.Use{{Device: 2*i + k, MiB: 1000}}}); err != nil {
				return nil, errors.Join(err, m.Close())
			}
		}
	}
	return m, nil
}

// cost is processor time: of genv, and of the programs that it ran.
type cost struct{ own, children time.Duration }

func (c cost) each(n int) cost { return cost{c.own / time.Duration(n), c.children / time.Duration(n)} }

// costOf is what a process took so far.
func costOf(pid int) (c cost, err error) {
	fields, err := statOf(pid)
	if err != nil {
		return c, err
	}
	c.own, err = ticks(fields, 14, 15)
	if err != nil {
		return c, err
	}
	c.children, err = ticks(fields, 16, 17)
	return c, err
}

// onHost is a genv command as it runs on a host.
func (b *bench) onHost(ctx context.Context, m *testfleet.Machine, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, b.genv, args...)
	cmd.Env = m.Environ()
	cmd.Stderr = b.progress
	return cmd
}

// settling is how long state files must have been as they are before genv
// trusts that they would look different if they were not.
const settling = 3 * time.Second

// keptSnapshots asks a `genv usage serve` n times for a snapshot that does not
// change.
func (b *bench) keptSnapshots(ctx context.Context, m *testfleet.Machine, n int) (cost, error) {
	cmd := b.onHost(ctx, m, "usage", "serve", "--token", "t")
	in, err := cmd.StdinPipe()
	if err != nil {
		return cost{}, err
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		return cost{}, err
	}
	if err := cmd.Start(); err != nil {
		return cost{}, err
	}
	defer func() {
		_ = in.Close() // and so it ends
		_ = cmd.Wait()
	}()
	client, err := agent.OpenStream(ctx, out, in, "t")
	if err != nil {
		return cost{}, err
	}
	ask := &asker{client: client}
	for begun := time.Now(); time.Since(begun) < settling; {
		if err := ask.once(ctx); err != nil {
			return cost{}, err
		}
	}
	before, err := costOf(cmd.Process.Pid)
	if err != nil {
		return cost{}, err
	}
	changes := ask.changes
	for range n {
		if err := ask.once(ctx); err != nil {
			return cost{}, err
		}
	}
	after, err := costOf(cmd.Process.Pid)
	if ask.changes != changes {
		err = errors.Join(err, fmt.Errorf("the snapshot changed %d times", ask.changes-changes))
	}
	return cost{after.own - before.own, after.children - before.children}.each(n), err
}

// asker asks for snapshots, and counts those that were new.
type asker struct {
	client   *agent.Stream
	revision uint64
	changes  int
}

func (a *asker) once(ctx context.Context) error {
	request, err := json.Marshal(agent.SnapshotRequest{Revision: a.revision})
	if err != nil {
		return err
	}
	data, err := a.client.Call(ctx, agent.RequestSnapshot, request)
	if err != nil {
		return err
	}
	var answer agent.SnapshotAnswer
	if err := json.Unmarshal(data, &answer); err != nil {
		return err
	}
	if answer.Snapshot != nil {
		a.changes++
	}
	a.revision = answer.Revision
	return nil
}

// singleSnapshots runs `genv usage snapshot` n times, and each time nvidia-smi
// by itself with both questions, which are what the command's children do.
func (b *bench) singleSnapshots(ctx context.Context, m *testfleet.Machine, n int) (sum cost, err error) {
	for range n {
		whole, err := processorTime(b.onHost(ctx, m, "usage", "snapshot"))
		if err != nil {
			return sum, err
		}
		var beside time.Duration
		for _, args := range [][]string{nvidiasmi.DevicesArgs(), nvidiasmi.AppsArgs()} {
			smi := b.onHost(ctx, m, args...)
			smi.Path = m.NvidiaSMI()
			smi.Args[0] = smi.Path
			took, err := processorTime(smi)
			if err != nil {
				return sum, err
			}
			beside += took
		}
		sum.own, sum.children = sum.own+whole-beside, sum.children+beside
	}
	return sum.each(n), nil
}

// processorTime is that of a command and of all that it ran and waited for.
func processorTime(cmd *exec.Cmd) (time.Duration, error) {
	if err := cmd.Run(); err != nil {
		return 0, fmt.Errorf("%s: %w", cmd, err)
	}
	return cmd.ProcessState.UserTime() + cmd.ProcessState.SystemTime(), nil
}
