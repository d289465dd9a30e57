package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/seed-3119e985/genv/remote/testfleet"
	"github.com/seed-3119e985/genv/remote/testfleet/gpus"
	"github.com/seed-3119e985/genv/remote/testfleet/inprocess"
	"github.com/seed-3119e985/genv/snapshot"
)

// stage is the scene come to life.
type stage struct {
	dir      string
	program  string // this program: jobs and nvidia-smi
	machines map[string]*testfleet.Machine
	envs     map[envKey]snapshot.EnvID
	shells   []*testfleet.Job
	jobs     []*testfleet.Job // in the order of jobSpecs
	fleet    *inprocess.Fleet
	hosts    string // the path of the hosts file that describes it
}

type envKey struct {
	host string
	user snapshot.Username
}

// build makes the hosts, their people and their processes. Close ends all of
// it, also after an error.
func build(genv, hosts string, now time.Time) (*stage, error) {
	s := &stage{machines: map[string]*testfleet.Machine{}, envs: map[envKey]snapshot.EnvID{}, hosts: hosts}
	var err error
	if s.program, err = os.Executable(); err != nil {
		return s, fmt.Errorf("find this program: %w", err)
	}
	if s.dir, err = os.MkdirTemp("", "genv-demo-"); err != nil {
		return s, err
	}
	for _, spec := range hostSpecs {
		devices := gpus.Devices(spec.name, spec.devices, spec.model, spec.totalMiB)
		if s.machines[spec.name], err = testfleet.NewMachine(filepath.Join(s.dir, spec.name), devices, s.program); err != nil {
			return s, err
		}
		if err := s.activate(spec.name, now); err != nil {
			return s, err
		}
	}
	for _, spec := range jobSpecs {
		job, err := s.startJob(spec)
		if err != nil {
			return s, err
		}
		s.jobs = append(s.jobs, job)
	}
	return s, s.listen(genv)
}

// activate writes a host's state, with a shell for each environment that lives
// as long as the environment does. As in 1.4.3 the shell's PID is the id.
func (s *stage) activate(host string, now time.Time) error {
	var envs []snapshot.Environment
	attached := map[snapshot.DeviceIndex][]snapshot.Attachment{}
	for _, spec := range envSpecs {
		if spec.host != host {
			continue
		}
		shell, err := s.machines[host].Start(testfleet.JobOptions{Command: []string{s.program}, Title: "bash", Environ: []string{jobVariable + "=" + endsAtOnce}})
		if err != nil {
			return err
		}
		s.shells = append(s.shells, shell)
		env := environment(spec, shell.PID(), now)
		s.envs[envKey{host, spec.user}] = env.EID
		envs = append(envs, env)
		for _, a := range spec.attached {
			attached[a.device] = append(attached[a.device], snapshot.Attachment{
				EID: env.EID, GPUMemory: env.Config.GPUMemory, Time: snapshot.DateOf(now.Add(-time.Duration(a.minutes) * time.Minute)),
			})
		}
	}
	return s.machines[host].WriteState(envs, attached)
}

func environment(spec envSpec, shell snapshot.PID, now time.Time) snapshot.Environment {
	env := snapshot.Environment{
		EID: snapshot.EnvID(strconv.Itoa(int(shell))), UID: snapshot.UID(os.Getuid()), Username: spec.user,
		Creation: snapshot.DateOf(now.Add(-3 * time.Hour)), PIDs: []snapshot.PID{shell},
		Config: snapshot.EnvConfig{Name: spec.name},
	}
	if spec.capacity != "" {
		env.Config.GPUMemory = snapshot.MustMemory(spec.capacity)
	}
	return env
}

func (s *stage) startJob(spec jobSpec) (*testfleet.Job, error) {
	ending := endsAtOnce
	if spec.slow {
		ending = endsSlowly
	}
	return s.machines[spec.host].Start(testfleet.JobOptions{
		Command: []string{s.program}, Title: spec.program, Name: spec.program,
		Environment: s.envs[envKey{spec.host, spec.user}],
		Uses:        []testfleet.Use{{Device: spec.device, MiB: spec.miB}},
		Environ:     []string{jobVariable + "=" + ending},
	})
}

// listen opens the hosts to SSH: on the port of hosts.example.yaml, or, when it
// is taken, on another one with a hosts file of its own.
func (s *stage) listen(genv string) error {
	options := inprocess.Options{Dir: s.dir, Port: port}
	for _, spec := range hostSpecs {
		options.Hosts = append(options.Hosts, inprocess.HostOptions{
			Name: spec.name, Address: spec.address, Handler: &inprocess.Exec{Genv: genv, Machine: s.machines[spec.name]},
		})
	}
	var err error
	if s.fleet, err = inprocess.Start(options); err == nil && s.hosts != "" {
		return nil
	}
	if errors.Is(err, inprocess.ErrPortInUse) {
		options.Port = 0
		s.fleet, err = inprocess.Start(options)
	}
	if err != nil {
		return err
	}
	return s.writeHosts()
}

func (s *stage) writeHosts() error {
	var b strings.Builder
	fmt.Fprintf(&b, "defaults:\n  port: %d\nhosts:\n", s.fleet.Port())
	for _, spec := range hostSpecs {
		fmt.Fprintf(&b, "  - name: %s\n    address: %s\n", spec.name, spec.address)
	}
	s.hosts = filepath.Join(s.dir, "hosts.yaml")
	return os.WriteFile(s.hosts, []byte(b.String()), 0o600)
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
	if s.dir != "" {
		errs = append(errs, os.RemoveAll(s.dir))
	}
	return errors.Join(errs...)
}
