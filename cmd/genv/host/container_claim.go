package host

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"

	"github.com/seed-3119e985/genv/snapshot"
	"github.com/seed-3119e985/genv/snapshot/container"
	"github.com/seed-3119e985/genv/snapshot/container/grant"
	"github.com/seed-3119e985/genv/snapshot/container/oci"
	"github.com/seed-3119e985/genv/snapshot/gpus"
	"github.com/seed-3119e985/genv/snapshot/proc"
	"github.com/seed-3119e985/genv/snapshot/state"
	"github.com/seed-3119e985/genv/snapshot/state/disk"
	"github.com/seed-3119e985/genv/snapshot/state/service"
	"github.com/seed-3119e985/genv/snapshot/state/system"
)

// claimed is a container that has its devices, and isn't created yet. This process, which becomes the real runtime, is
// registered in the container's environment. If it ends early, the environment ends, too.
type claimed struct {
	grant.Granted
	*runtime
	record container.Record
}

// claim's error needs no context.
func (r *runtime) claim(ctx context.Context, request grant.GPURequest) (*claimed, error) {
	if proc.InUserNamespace() { // root only there, so it can't judge the state files
		return nil, fmt.Errorf("%w: this runtime doesn't give GPUs to containers of rootless engines: use --runtime "+
			"runc, or remove it from ~/.config/docker/daemon.json", grant.ErrRefused)
	}
	pid := snapshot.PID(os.Getpid())
	stat, err := r.host.Machine.Proc.Stat(pid)
	if err != nil {
		return nil, err
	}
	run := disk.RunDir(r.Getenv)
	_ = container.PruneRecords(run, r.host.StartOf) // leftovers keep nothing alive
	proof, why := r.proof(ctx, request)
	if why != nil && request.Token == "" && !request.AsksForGPUs() {
		return nil, why
	}
	owner, err := r.host.Store.Owner()
	if err != nil {
		return nil, err
	}
	known, _ := r.host.Machine.Hardware.Known() // on error, devices have only indices
	c := grant.Applicant{
		GPURequest: request, Proof: proof, Container: r.id, PID: pid, Now: snapshot.DateOf(r.Now()), Hardware: known,
		Shared: owner == nil,
	}
	// A container doesn't wait for nvidia-smi.
	if look, known := r.host.Machine.LastLook(); known {
		c.States, c.Last = gpus.InUse(look.GPUs), gpus.Last(look.GPUs)
	}
	done := &claimed{runtime: r, record: container.Record{
		ID: r.id, Runtime: r.engineName(), StartedAt: r.Now().UTC(), PID: pid, Start: stat.Start,
	}}
	if proof != nil {
		c.Username = system.Username(ctx, proof.UID)
		done.record.UID, done.record.Proof = &proof.UID, container.ProofToken
	}
	// The record is written before the state files. nvidia-smi is asked only if too few devices are registered.
	err = service.WithDevices(ctx, r.host.Store, r.host.Machine.ListDevices, func() error {
		return r.host.Store.Update(ctx, func(f *state.Files) (err error) {
			if done.Granted, err = c.Apply(f); err != nil || !container.IsID(r.id) {
				return err
			}
			done.record.EID = done.EID
			return container.WriteRecord(run, done.record)
		})
	})
	if err != nil {
		_ = container.RemoveRecord(run, r.id, nil)
		return nil, err
	}
	if why != nil && done.Own {
		r.Warnf("genv: container %.12s has environment %s, which counts for no user: %v", r.id, done.EID, why)
	}
	return done, nil
}

func (r *runtime) proof(ctx context.Context, request grant.GPURequest) (*grant.ProvedUser, error) {
	if request.Token == "" {
		return nil, errors.New("it was not started by `genv docker`, or by docker in a shell with an environment")
	}
	notes := grant.RestartNotes{Dir: disk.RootDir(r.Getenv), Now: r.Now}
	holder, err := r.host.Service.Redeem(ctx, request.Token)
	if err != nil { // a restart may use an old token
		if note, noteErr := notes.Find(r.id, r.engineName(), request.Token); noteErr == nil {
			holder, err = note.ProvedUser, nil
		}
	}
	switch {
	case errors.Is(err, service.ErrNotRunning):
		return nil, errors.New("root's service doesn't run (`genv host serve`)")
	case err != nil:
		return nil, err
	}
	note := grant.RestartNote{ID: r.id, ProvedUser: holder, Runtime: r.engineName()}
	if err := notes.Write(note, request.Token); err != nil {
		r.Warn("genv: the container counts for no user after a restart: " + err.Error())
	}
	return &holder, nil
}

func (c *claimed) undo(ctx context.Context) {
	run := disk.RunDir(c.Getenv)
	_ = c.host.Store.Update(ctx, func(f *state.Files) error {
		forget(f, &c.record)
		return nil
	}) // on error it is cleaned up after the end of this process
	_ = container.RemoveRecord(run, c.id, nil)
}

func forget(f *state.Files, r *container.Record) {
	if env := f.EnvironmentOf(r.PID); env != nil && env.EID == r.EID {
		f.Deactivate(r.PID)
	}
}

func (c *claimed) writeConfig(config *oci.ContainerConfig) error {
	self, err := os.Executable()
	if err != nil {
		return err
	}
	c.SetVariables(config)
	order, err := json.Marshal(hookOrder{c.record, disk.RunDir(c.Getenv), c.GPUs, c.Registered})
	if err != nil {
		return err
	}
	var env []string
	for _, name := range []string{"PATH", "GENV_TMPDIR", "GENV_ROOT_DIR"} {
		if value := c.Getenv(name); value != "" {
			env = append(env, name+"="+value)
		}
	}
	timeout := 30 // seconds; locking the state files may take some
	for stage, what := range map[string]string{"createRuntime": hookStart, "poststop": hookStop} {
		config.AddHook(stage, oci.Hook{
			Path: self, Args: []string{"genv", HookCommand, what, string(order)}, Env: env, Timeout: &timeout,
		})
	}
	return config.Write()
}

type hookOrder struct {
	container.Record
	Run        string `json:"run"`
	GPUs       bool   `json:"gpus,omitempty"`
	Registered bool   `json:"registered,omitempty"`
}
