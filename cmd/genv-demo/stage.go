package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/seed-3119e985/genv/remote/testfleet"
	"github.com/seed-3119e985/genv/remote/testfleet/gpus"
	"github.com/seed-3119e985/genv/remote/testfleet/inprocess"
	"github.com/seed-3119e985/genv/snapshot"
)

// stage is the scene with real processes.
type stage struct {
	dir      string
	program  string // plays jobs, nvidia-smi and genv on the hosts
	machines map[string]*testfleet.Machine
	envs     map[envKey]*testfleet.Env
	jobs     []*testfleet.Process
	specs    []jobSpec // of jobs
	fleet    *inprocess.Fleet
}

type envKey struct{ host, user string }

// build makes the hosts, their environments and their processes, which the program plays. Close ends all, also after an
// error.
func build(program string, now time.Time) (*stage, error) {
	s := &stage{program: program, machines: map[string]*testfleet.Machine{}, envs: map[envKey]*testfleet.Env{}}
	var err error
	if s.dir, err = os.MkdirTemp("", "genv-demo-"); err != nil {
		return s, err
	}
	for _, spec := range hostSpecs {
		devices := gpus.Devices(spec.name, spec.devices, spec.model, spec.totalMiB)
		if spec.failed > 0 {
			devices[spec.failed].Fault = gpus.Lost
		}
		if s.machines[spec.name], err = testfleet.NewMachine(filepath.Join(s.dir, spec.name), devices, s.program); err != nil {
			return s, err
		}
	}
	for _, spec := range envSpecs {
		if err := s.activate(spec, now); err != nil {
			return s, err
		}
	}
	for _, spec := range jobSpecs {
		if err := s.startJob(spec); err != nil {
			return s, err
		}
	}
	return s, s.listen()
}

// activate registers an environment, and a shell that is in it.
func (s *stage) activate(spec envSpec, now time.Time) error {
	config := snapshot.EnvConfig{Name: spec.name}
	if spec.capacity != "" {
		config.GPUMemory = snapshot.MustMemory(spec.capacity)
	}
	m := s.machines[spec.host]
	env, err := m.Activate(testfleet.Environment{User: spec.user, Config: config, At: now.Add(-3 * time.Hour)})
	if err != nil {
		return err
	}
	s.envs[envKey{spec.host, spec.user}] = env
	for _, a := range spec.attached {
		if err := m.Attach(env, a.device, now.Add(-time.Duration(a.minutes)*time.Minute)); err != nil {
			return err
		}
	}
	return nil
}

func (s *stage) startJob(spec jobSpec) error {
	variables := []string{jobVariable + "=" + spec.ending.String()}
	if env := s.envs[envKey{spec.host, spec.user}]; env != nil {
		variables = append(variables, env.Var())
	}
	job, err := s.machines[spec.host].StartJob(testfleet.Job{
		User: spec.user, Command: []string{s.program}, Name: spec.program, Env: variables,
		Uses: []testfleet.Use{{Device: spec.device, MiB: spec.miB, Load: &spec.load}},
	})
	s.jobs, s.specs = append(s.jobs, job), append(s.specs, spec)
	return err
}

// listen opens the hosts to SSH: on the port of hosts.example.yaml or, when it is in use, on another one.
func (s *stage) listen() error {
	genv := filepath.Join(s.dir, hostGenv)
	program, err := os.ReadFile(s.program)
	if err != nil {
		return err
	}
	// It is a copy, since genv takes a link to itself for its own shim of nvidia-smi.
	if err := os.WriteFile(genv, program, 0o700); err != nil {
		return err
	}
	var servers []*inprocess.Server
	for _, spec := range hostSpecs {
		m := s.machines[spec.name]
		if err := m.Install(genv); err != nil {
			return err
		}
		servers = append(servers, &inprocess.Server{Name: spec.name, Address: spec.address, Handler: &inprocess.Exec{Machine: m}})
	}
	s.fleet, err = inprocess.Start(s.dir, port, servers...)
	if errors.Is(err, inprocess.ErrPortInUse) {
		s.fleet, err = inprocess.Start(s.dir, 0, servers...)
	}
	if err != nil {
		return err
	}
	var b strings.Builder
	fmt.Fprintf(&b, "defaults:\n  port: %d\nhosts:\n", s.fleet.Port)
	for _, spec := range hostSpecs {
		fmt.Fprintf(&b, "  - name: %s\n    address: %s\n", spec.name, spec.address)
	}
	return s.configure("hosts.yaml", b.String())
}

// configure writes a configuration file of genv, which finds it with GENV_CONFIG_DIR.
func (s *stage) configure(name, content string) error {
	return os.WriteFile(filepath.Join(s.dir, name), []byte(content), 0o600)
}

// Close ends every process and connection of the demo and removes its folder.
func (s *stage) Close() error {
	if s.fleet != nil {
		s.fleet.Close()
	}
	var errs []error
	for _, m := range s.machines {
		if m != nil {
			errs = append(errs, m.Close())
		}
	}
	return errors.Join(append(errs, os.RemoveAll(s.dir))...) // "" removes nothing
}

// hostSpec is a host of the demo; hosts.example.yaml names the same.
type hostSpec struct {
	name, address string
	devices       int
	model         string
	totalMiB      int64
	failed        int // the index of a GPU that has fallen off the bus; 0 for none
}

const port = 7722 // of all hosts, as in hosts.example.yaml

var hostSpecs = []hostSpec{
	{"gpu-01", "127.77.0.1", 8, "NVIDIA A100-SXM4-80GB", 81920, 7},
	{"gpu-02", "127.77.0.2", 8, "NVIDIA A100-SXM4-80GB", 81920, 0},
	{"gpu-03", "127.77.0.3", 4, "NVIDIA H100 80GB HBM3", 81559, 0},
	{"gpu-04", "127.77.0.4", 4, "NVIDIA H100 80GB HBM3", 81559, 0},
}

// rules are what the demo enforces, in addition to the two rules that always hold.
var rules = []string{"--non-env-processes", "--max-devices-per-user", "2"}

// envSpec is an environment, with the shell in which its owner activated it.
type envSpec struct {
	host, user, name string
	capacity         string         // memory on each device; empty for all of it
	attached         []attachedSpec // in the order of the devices
}

// attachedSpec is an attached device.
type attachedSpec struct {
	device    snapshot.DeviceIndex
	minutes   int    // before now
	violation string // why it is detached; empty when it stays
}

// jobSpec is a process.
type jobSpec struct {
	host      string
	user      string // the owner; empty for a process in no environment
	program   string
	device    snapshot.DeviceIndex
	miB       int64
	load      int           // in percent of the device
	violation string        // why it is ended; empty for a process that must keep running
	ending    time.Duration // from SIGTERM to the end
}

var envSpecs = []envSpec{
	{host: "gpu-01", user: "alice", name: "llama", attached: []attachedSpec{{device: 0, minutes: 50}, {device: 1, minutes: 49}}},
	{host: "gpu-02", user: "bob", name: "vision", attached: []attachedSpec{{device: 0, minutes: 120}}},
	{host: "gpu-02", user: "erin", attached: []attachedSpec{{device: 5, minutes: 90}}},
	{host: "gpu-03", user: "carol", name: "speech", capacity: "20g", attached: []attachedSpec{{device: 0, minutes: 80}}},
	{host: "gpu-03", user: "dave", attached: []attachedSpec{{device: 2, minutes: 40}}},
	{host: "gpu-04", user: "dave", capacity: "40g", attached: []attachedSpec{{device: 3, minutes: 30}}},
	{host: "gpu-04", user: "erin", name: "sweep", attached: []attachedSpec{
		{device: 0, minutes: 60},
		{device: 1, minutes: 55, violation: "idle, and erin has 4 GPUs where 2 are allowed"},
		{device: 2, minutes: 5, violation: "erin's newest, and she still has 3"},
	}},
}

var jobSpecs = []jobSpec{
	{host: "gpu-01", user: "alice", program: "train.py", device: 0, miB: 61000, load: 97},
	{host: "gpu-01", user: "alice", program: "train.py", device: 1, miB: 61000, load: 93},
	{host: "gpu-01", program: "miner", device: 6, miB: 4200, load: 99, violation: "in no environment"},
	{host: "gpu-02", user: "bob", program: "resnet.py", device: 0, miB: 22000, load: 71},
	{host: "gpu-02", user: "bob", program: "notebook", device: 3, miB: 9000, load: 38, violation: "GPU 3 is not attached to bob"},
	{host: "gpu-02", user: "erin", program: "sweep.py", device: 5, miB: 12000, load: 88},
	{host: "gpu-03", user: "carol", program: "whisper.py", device: 0, miB: 15000, load: 64},
	{host: "gpu-03", user: "carol", program: "eval.py", device: 0, miB: 8000, load: 64, violation: "carol's two use more than her 20g"},
	{host: "gpu-03", user: "dave", program: "serve.py", device: 2, miB: 40000, load: 0},
	{host: "gpu-04", user: "dave", program: "tune.py", device: 3, miB: 30000, load: 95},
	{host: "gpu-04", user: "erin", program: "sweep.py", device: 0, miB: 12000, load: 81},
	{host: "gpu-04", user: "erin", program: "sweep.py", device: 2, miB: 12000, load: 86, violation: "on a GPU beyond erin's 2", ending: 300 * time.Millisecond},
}

// laterSpecs come after the rules were enforced.
var laterSpecs = []jobSpec{
	{host: "gpu-04", user: "frank", program: "train.py", device: 1, miB: 70000, load: 96},
	{host: "gpu-04", user: "frank", program: "train.py", device: 2, miB: 70000, load: 98},
}
