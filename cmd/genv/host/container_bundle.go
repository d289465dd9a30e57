package host

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"

	"github.com/seed-3119e985/genv/snapshot"
	"github.com/seed-3119e985/genv/snapshot/container"
	"github.com/seed-3119e985/genv/snapshot/container/grant"
	"github.com/seed-3119e985/genv/snapshot/container/oci"
	"github.com/seed-3119e985/genv/snapshot/hardware"
	"github.com/seed-3119e985/genv/snapshot/state/disk"
)

// Where a container has what is mounted into it.
const (
	insideShims = "/opt/genv/shims"
	insideBin   = "/opt/genv/bin"
)

// writeConfig writes into the container's config.json what it has, and the hooks.
func (c *claimed) writeConfig(config *oci.Config, request grant.Request) error {
	self, err := os.Executable()
	if err != nil {
		return err
	}
	c.SetVariables(config)
	if err := c.addHooks(config, self); err != nil {
		return err
	}
	if request.Shims || request.Locks {
		if err := c.mountGenv(config, self); err != nil {
			return err
		}
	}
	if request.Shims {
		c.mountShims(config, self)
	}
	if request.Locks && len(c.Devices) > 0 {
		if err := c.mountLocks(config); err != nil {
			return err
		}
	}
	return config.Write()
}

// addHooks has genv called when the container's init exists, and when it has ended.
func (c *claimed) addHooks(config *oci.Config, self string) error {
	order, err := json.Marshal(hookOrder{
		Run: disk.RunDir(c.Getenv), EID: c.EID, UID: c.UID, Proof: c.record.Proof, Runtime: c.record.Runtime, GPUs: c.GPUs, Registered: c.Registered,
	})
	if err != nil {
		return err
	}
	var env []string
	for _, name := range []string{"PATH", "GENV_TMPDIR", "GENV_ROOT_DIR"} {
		if value := c.Getenv(name); value != "" {
			env = append(env, name+"="+value)
		}
	}
	timeout := int(hookWithin.Seconds())
	for moment, what := range map[string]string{"createRuntime": hookStart, "poststop": hookStop} {
		config.AddHook(moment, oci.Hook{Path: self, Args: []string{"genv", HookCommand, what, string(order)}, Env: env, Timeout: &timeout})
	}
	return nil
}

// hookOrder is what the runtime tells the hooks.
type hookOrder struct {
	Run     string          `json:"run"`
	EID     snapshot.EnvID  `json:"eid,omitempty"`
	UID     *snapshot.UID   `json:"uid,omitempty"`
	Proof   container.Proof `json:"proof,omitempty"`
	Runtime string          `json:"runtime,omitempty"`
	GPUs    bool            `json:"gpus,omitempty"`

	Registered bool `json:"registered,omitempty"`
}

func bind(config *oci.Config, from, to string) {
	config.AddMount(oci.Mount{Destination: to, Type: "bind", Source: from, Options: []string{"bind", "ro", "nosuid", "nodev"}})
}

// mountGenv lets programs in the container call genv.
func (c *claimed) mountGenv(config *oci.Config, self string) error {
	dir, _, err := c.host.Store.Where()
	if err != nil {
		return err
	}
	source, err := c.host.Store.MountPath()
	if err != nil {
		return fmt.Errorf("the state files can't be mounted: %w", err)
	}
	bind(config, self, filepath.Join(insideBin, "genv"))
	prependPath(config, insideBin)
	// Read-only also where every user writes it: uid 0 of a container could leave programs
	// there that run as root on the host.
	bind(config, source, dir)
	for _, name := range []string{"GENV_TMPDIR", "GENV_ROOT_DIR"} {
		if value := c.Getenv(name); value != "" {
			config.SetEnv(name, value)
		}
	}
	// Not the folder: in it is the socket of root's service, for which root of a container
	// would be root.
	if published := hardware.Path(disk.RunDir(c.Getenv)); exists(published) {
		bind(config, published, published)
	}
	return nil
}

// mountShims lets nvidia-smi in the container show the devices of the environment.
func (c *claimed) mountShims(config *oci.Config, self string) {
	bind(config, self, filepath.Join(insideShims, "nvidia-smi"))
	prependPath(config, insideShims)
}

// mountLocks shares the locks of the devices, for `genv lock` in the container. A file that
// can't be written can be locked.
func (c *claimed) mountLocks(config *oci.Config) error {
	dir, err := c.host.Store.LocksDir(c.Devices)
	if err != nil {
		return fmt.Errorf("the locks can't be mounted: %w", err)
	}
	if dir != "" {
		bind(config, dir, dir)
	}
	return nil
}

func prependPath(config *oci.Config, dir string) {
	path := config.Getenv("PATH")
	if path == "" {
		path = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
	}
	config.SetEnv("PATH", dir+":"+path)
}

func exists(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}
