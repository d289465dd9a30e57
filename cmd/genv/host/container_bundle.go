package host

import (
	"encoding/json"
	"os"

	"github.com/seed-3119e985/genv/snapshot"
	"github.com/seed-3119e985/genv/snapshot/container/oci"
	"github.com/seed-3119e985/genv/snapshot/state/disk"
)

// writeConfig writes into the container's config.json what it has, and hooks: genv is called when its init exists, and
// when it has ended.
func (c *claimed) writeConfig(config *oci.ContainerConfig) error {
	self, err := os.Executable()
	if err != nil {
		return err
	}
	c.SetVariables(config)
	order, err := json.Marshal(hookOrder{
		Run: disk.RunDir(c.Getenv), EID: c.EID, UID: c.UID, Proof: c.record.Proof, Runtime: c.record.Runtime,
		GPUs: c.GPUs, Registered: c.Registered,
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
	for stage, what := range map[string]string{"createRuntime": hookStart, "poststop": hookStop} {
		config.AddHook(stage, oci.Hook{
			Path: self, Args: []string{"genv", HookCommand, what, string(order)}, Env: env, Timeout: &timeout,
		})
	}
	return config.Write()
}

// hookOrder is what the runtime tells the hooks.
type hookOrder struct {
	Run     string         `json:"run"`
	EID     snapshot.EnvID `json:"eid,omitempty"`
	UID     *snapshot.UID  `json:"uid,omitempty"`
	Proof   string         `json:"proof,omitempty"`
	Runtime string         `json:"runtime,omitempty"`
	GPUs    bool           `json:"gpus,omitempty"`

	Registered bool `json:"registered,omitempty"`
}
