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
	program  string // this program, which plays jobs and nvidia-smi
	machines map[string]*testfleet.Machine
	envs     map[envKey]*testfleet.Env
	jobs     []*testfleet.Process // in the order of jobSpecs
	fleet    *inprocess.Fleet
	example  string // a hosts file that describes the fleet on its usual port; empty for none
}

type envKey struct {
	host string
	user string
}

// build makes the hosts, their environments and their processes. Close ends all
// of it, also after an error.
func build(example string, now time.Time) (*stage, error) {
	s := &stage{machines: map[string]*testfleet.Machine{}, envs: map[envKey]*testfleet.Env{}, example: example}
	var err error
	if s.program, err = os.Executable(); err != nil {
		return s, fmt.Errorf("find this program: %w", err)
	}
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
	s.jobs = append(s.jobs, job)
	return err
}

// listen opens the hosts to SSH: on the port of hosts.example.yaml, which is the
// inventory then, or, when it is in use, on another one with an inventory of its own.
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
		servers = append(servers, &inprocess.Server{
			Name: spec.name, Address: spec.address, Handler: &inprocess.Exec{Genv: genv, Machine: s.machines[spec.name]},
		})
	}
	s.fleet, err = inprocess.Start(s.dir, port, servers...)
	if err == nil && s.example != "" {
		inventory, err := os.ReadFile(s.example)
		if err != nil {
			return err
		}
		return s.configure("hosts.yaml", string(inventory))
	}
	if errors.Is(err, inprocess.ErrPortInUse) {
		s.fleet, err = inprocess.Start(s.dir, 0, servers...)
	}
	if err != nil {
		return err
	}
	return s.writeHosts()
}

func (s *stage) writeHosts() error {
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
