package main

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/seed-3119e985/genv/remote/testfleet/genvhost"
	"github.com/seed-3119e985/genv/remote/testfleet/inprocess"
	"github.com/seed-3119e985/genv/snapshot"
)

// serve runs b.many hosts in this process until in ends, with addresses from first on. It prints a line when they listen.
func (b *bench) serve(dir, prefix string, first int, in io.Reader, out io.Writer) error {
	var servers []*inprocess.Server
	for i, name := range numbered(prefix, b.many) {
		at := first + i
		host := genvhost.New(eightGPUs(at))
		if b.reporting {
			host.WithEvents()
		}
		servers = append(servers, &inprocess.Server{
			Name: name, Address: fmt.Sprintf("127.94.%d.%d", at/250, at%250+1), Handler: host,
		})
	}
	fleet, err := inprocess.Start(dir, 0, servers...)
	if err != nil {
		return err
	}
	defer fleet.Close()
	fmt.Fprintln(out, "ready")
	_, err = io.Copy(io.Discard, in)
	return err
}

// eightGPUs is a host that is in use: four environments with two devices each, and two processes on each device.
func eightGPUs(seed int) *snapshot.Snapshot {
	s := &snapshot.Snapshot{BootID: "5c1ac0de-0000-4000-8000-000000000000"}
	at := snapshot.DateOf(time.Date(2026, 11, 20, 10, 0, 0, 0, time.Local))
	for i := range 8 {
		index, eid := snapshot.DeviceIndex(i), snapshot.EnvID(strconv.Itoa(2000+i/2))
		uid := snapshot.UID(1000 + (seed+i/2)%50)
		user := snapshot.Username(fmt.Sprintf("user%d", uid))
		if i%2 == 0 {
			s.Environments = append(s.Environments, snapshot.Environment{EID: eid, UID: uid, Username: user, Creation: at, Since: 100, PIDs: []snapshot.PID{snapshot.PID(2000 + i/2)}})
		}
		s.Devices = append(s.Devices, snapshot.Device{
			Index: index, TotalMemory: snapshot.MiB(81559), UUID: snapshot.GPUUUID(fmt.Sprintf("GPU-%08d-%d", seed, i)),
			Name: "NVIDIA H100 80GB HBM3", UsedMemory: snapshot.MiB(60000), Utilization: new(97),
			Attachments: []snapshot.Attachment{{EID: eid, Time: at, Since: 100}},
		})
		for k := range 2 {
			s.Processes = append(s.Processes, snapshot.Process{
				PID: snapshot.PID(5000 + 10*i + k), EID: eid, Start: snapshot.StartTime(100000 + i), UID: &uid, Name: "python",
				Usage: []snapshot.DeviceUsage{{Index: index, Memory: snapshot.MiB(30000)}},
			})
		}
	}
	return s
}

// manyRows is a controller with more hosts than this machine could run sshds: another process on it has their servers.
func (b *bench) manyRows(ctx context.Context) ([]row, error) {
	f, err := b.startFleet(ctx, "-many", strconv.Itoa(b.many))
	if err != nil {
		return nil, err
	}
	defer f.end()
	c, err := b.startController(ctx, filepath.Join(f.dir, "ssh_config"), numbered("sim", b.many), 400*time.Millisecond)
	if err != nil {
		return nil, err
	}
	defer c.end()
	return c.steadyRows(b.many, 8*b.runs, fmt.Sprintf("%d in-process hosts: ", b.many), "≤ 0.3 s", "≤ 150 µs")
}

// served is a fleet in another process.
type served struct {
	dir string
	cmd *exec.Cmd
	in  io.WriteCloser
}

// startFleet starts this program again as a fleet.
func (b *bench) startFleet(ctx context.Context, flags ...string) (*served, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	f := new(served)
	if f.dir, err = os.MkdirTemp("", "genv-bench-"); err != nil {
		return nil, err
	}
	f.cmd = exec.CommandContext(ctx, self, append([]string{"-serve", f.dir, fmt.Sprintf("-reporting=%t", b.reporting)}, flags...)...)
	f.cmd.Stderr = b.progress
	var errIn error
	f.in, errIn = f.cmd.StdinPipe()
	out, errOut := f.cmd.StdoutPipe()
	if err := cmp.Or(errIn, errOut); err != nil {
		return nil, err
	}
	if err := f.cmd.Start(); err != nil {
		return nil, err
	}
	if _, err := bufio.NewReader(out).ReadString('\n'); err != nil {
		f.end()
		return nil, fmt.Errorf("the fleet did not start: %w", err)
	}
	return f, nil
}

func (f *served) end() {
	_ = f.in.Close() // and so it ends
	_ = f.cmd.Wait()
	_ = os.RemoveAll(f.dir)
}

// hugeServers is how many processes have the hosts: each needs two file descriptors for a host.
const hugeServers = 4

// hugeRows are a controller with as many hosts as the largest fleets have: how long it takes to connect, its cycles, and
// what it needs.
func (b *bench) hugeRows(ctx context.Context) (_ []row, err error) {
	dir, err := os.MkdirTemp("", "genv-bench-")
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	each := b.huge / hugeServers
	hosts := each * hugeServers
	config, list := new(bytes.Buffer), bytes.NewBufferString("hosts:\n")
	for i := range hugeServers {
		prefix := fmt.Sprintf("sim%d", i)
		s, err := b.startFleet(ctx, "-many", strconv.Itoa(each), "-first", strconv.Itoa(i*each), "-prefix", prefix)
		if err != nil {
			return nil, err
		}
		defer s.end()
		fmt.Fprintf(config, "Host %s-*\n\tInclude %s\n", prefix, filepath.Join(s.dir, "ssh_config"))
		fmt.Fprintf(list, "  - %s\n", strings.Join(numbered(prefix, each), "\n  - "))
	}
	sshConfig, file := filepath.Join(dir, "ssh_config"), filepath.Join(dir, "hosts.yaml")
	if err := cmp.Or(os.WriteFile(sshConfig, config.Bytes(), 0o600), os.WriteFile(file, list.Bytes(), 0o600)); err != nil {
		return nil, err
	}
	begun := time.Now()
	c, err := b.launch(ctx, sshConfig, file, 2*time.Second)
	if err != nil {
		return nil, err
	}
	defer c.end()
	if err := c.answered(hosts); err != nil {
		return nil, err
	}
	connected := row{
		what: fmt.Sprintf("%d hosts: connect to all", hosts), figure: brief(time.Since(begun)), goal: "≤ 60 s",
		detail: "from the start of the program to the end of the first cycle",
	}
	steady, err := c.steadyRows(hosts, 4*b.runs, "huge: ", "≤ 0.7 s", "≤ 120 µs")
	return append([]row{connected}, steady...), err
}
