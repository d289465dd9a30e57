// Package oci reads and changes config.json, with which a container engine describes a container to an OCI runtime (OCI
// runtime specification, "Configuration").
//
//	config, err := oci.Read(bundle)
//	config.SetEnv("GENV_ENVIRONMENT_ID", "4c01db0b339c")
//	err = config.Write()
//
// What is not changed stays the same, byte for byte. Package grant interprets it.
package oci

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/seed-3119e985/genv/snapshot/state/folder"
	"github.com/seed-3119e985/genv/snapshot/text"
)

// ErrGarbled means that no runtime would start this config.json.
var ErrGarbled = errors.New("config.json is not understood")

// ContainerConfig is the content of a config.json. Read the fields; Set, Add and Unset change what Encode writes.
type ContainerConfig struct {
	Env             []string // of the container's first process
	Annotations     map[string]string
	Devices         []DeviceNode // made by the runtime
	AllDevices      bool         // all devices of the machine are allowed, as with --privileged
	Hooks           map[string][]Hook
	InUserNamespace bool // the container has uids of its own

	dir   string // of the bundle; empty for none
	whole object
	added map[string][]Hook
}

// DeviceNode is a device node in the container.
type DeviceNode struct {
	Path  string `json:"path"`
	Type  string `json:"type"`
	Major int64  `json:"major"`
	Minor int64  `json:"minor"`
}

// Hook is a program that the runtime starts at a stage of a container's life.
type Hook struct {
	Path    string   `json:"path"`
	Args    []string `json:"args,omitempty"`
	Env     []string `json:"env,omitempty"`
	Timeout *int     `json:"timeout,omitempty"` // seconds
}

// Parse reads a config.json. Its error wraps ErrGarbled.
func Parse(data []byte) (*ContainerConfig, error) {
	var read struct {
		Process struct {
			Env []string `json:"env"`
		} `json:"process"`
		Annotations map[string]string `json:"annotations"`
		Hooks       map[string][]Hook `json:"hooks"`
		Linux       struct {
			Devices   []DeviceNode `json:"devices"`
			Resources struct {
				Devices []struct { // rules of the container's cgroup
					Allow bool   `json:"allow"`
					Type  string `json:"type"`
					Major *int64 `json:"major"`
					Minor *int64 `json:"minor"`
				} `json:"devices"`
			} `json:"resources"`
			Namespaces []struct {
				Type string `json:"type"`
			} `json:"namespaces"`
		} `json:"linux"`
	}
	c := &ContainerConfig{}
	if err := errors.Join(json.Unmarshal(data, &read), json.Unmarshal(data, &c.whole)); err != nil {
		return nil, fmt.Errorf("%w: %s", ErrGarbled, text.Cut(text.OneLine(err.Error()), maxReason))
	}
	if err := checkSpelling(c.whole); err != nil {
		return nil, err
	}
	c.Annotations, c.Hooks, c.Env, c.Devices = read.Annotations, read.Hooks, read.Process.Env, read.Linux.Devices
	for _, n := range read.Linux.Namespaces {
		c.InUserNamespace = c.InUserNamespace || n.Type == "user"
	}
	all := func(number *int64) bool { return number == nil || *number < 0 }
	for _, r := range read.Linux.Resources.Devices { // the last rule counts
		if (r.Type == "" || r.Type == "a") && all(r.Major) && all(r.Minor) {
			c.AllDevices = r.Allow
		}
	}
	return c, nil
}

const maxReason = 200 // bytes of an error of encoding/json

type object map[string]json.RawMessage

// checkSpelling refuses names in another case than the specification's: runc accepts them, and programs would read two
// spellings differently.
func checkSpelling(whole object) error {
	known := map[string][]string{
		"": {"process", "hooks", "annotations", "linux"}, "process": {"env"},
		"linux": {"devices", "resources", "namespaces"},
	}
	for name, names := range known {
		inner := whole
		if name != "" && whole[name] != nil {
			inner = nil
			if err := json.Unmarshal(whole[name], &inner); err != nil {
				return fmt.Errorf("%w: %s", ErrGarbled, name)
			}
		}
		for key := range inner {
			if i := slices.IndexFunc(names, func(n string) bool { return strings.EqualFold(n, key) }); i >= 0 &&
				names[i] != key {
				return fmt.Errorf("%w: %s is written %s", ErrGarbled, names[i], text.Quoted(key, maxReason))
			}
		}
	}
	return nil
}

// Getenv returns a variable of the container's first process; the last one counts.
func (c *ContainerConfig) Getenv(name string) string {
	value, _ := c.LookupEnv(name)
	return value
}

// LookupEnv is Getenv, and says whether the variable is set.
func (c *ContainerConfig) LookupEnv(name string) (value string, ok bool) {
	for _, entry := range slices.Backward(c.Env) {
		if n, value, _ := strings.Cut(entry, "="); n == name {
			return value, true
		}
	}
	return "", false
}

// UnsetEnv removes a variable.
func (c *ContainerConfig) UnsetEnv(name string) {
	c.Env = slices.DeleteFunc(slices.Clone(c.Env), func(entry string) bool {
		n, _, _ := strings.Cut(entry, "=")
		return n == name
	})
}

// SetEnv sets a variable.
func (c *ContainerConfig) SetEnv(name, value string) {
	c.UnsetEnv(name)
	c.Env = append(c.Env, name+"="+value)
}

// AddHook adds a hook behind those of a stage: "createRuntime" or "poststop".
func (c *ContainerConfig) AddHook(stage string, h Hook) {
	if c.added == nil {
		c.added = map[string][]Hook{}
	}
	c.added[stage] = append(c.added[stage], h)
}

// Encode returns the changed config.json.
func (c *ContainerConfig) Encode() ([]byte, error) {
	next := object{}
	maps.Copy(next, c.whole)
	err := change(next, "process", func(process object) error { return put(process, "env", c.Env) })
	if len(c.added) > 0 {
		err = errors.Join(err, change(next, "hooks", func(hooks object) error {
			var failed error
			for stage, added := range c.added {
				failed = errors.Join(failed, appendTo(hooks, stage, added))
			}
			return failed
		}))
	}
	if err != nil {
		return nil, fmt.Errorf("change config.json: %w", err)
	}
	return json.Marshal(next)
}

// change changes an inner object, which may be missing.
func change(outer object, name string, how func(object) error) error {
	inner := object{}
	if raw := outer[name]; raw != nil {
		if err := json.Unmarshal(raw, &inner); err != nil {
			return err
		}
	}
	if inner == nil { // null
		inner = object{}
	}
	if err := how(inner); err != nil {
		return err
	}
	return put(outer, name, inner)
}

func appendTo(outer object, name string, added []Hook) error {
	var list []json.RawMessage
	if raw := outer[name]; raw != nil {
		if err := json.Unmarshal(raw, &list); err != nil {
			return err
		}
	}
	for _, e := range added {
		raw, err := json.Marshal(e)
		if err != nil {
			return err
		}
		list = append(list, raw)
	}
	return put(outer, name, list)
}

func put(outer object, name string, value any) error {
	raw, err := json.Marshal(value)
	outer[name] = raw
	return err
}

const (
	fileName = "config.json"
	maxBytes = 16 << 20 // dockerd's have about 10 KiB, and some hundred with --privileged
)

// Read reads a bundle's config.json. The error wraps fs.ErrNotExist, ErrGarbled, or folder.ErrUnsafe for a file that no
// engine writes, such as a link.
func Read(bundle string) (*ContainerConfig, error) {
	dir, err := folder.OpenExisting(bundle)
	if err != nil {
		return nil, err
	}
	defer dir.Close()
	data, _, err := dir.Read(fileName, maxBytes)
	if err != nil {
		return nil, err
	}
	c, err := Parse(data)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", dir.Join(fileName), err)
	}
	c.dir = bundle
	return c, nil
}

// Write replaces the config.json by the changed one. An error leaves the old one.
func (c *ContainerConfig) Write() error {
	data, err := c.Encode()
	if err != nil {
		return err
	}
	dir, err := folder.OpenExisting(c.dir)
	if err != nil {
		return err
	}
	defer dir.Close()
	return dir.Put(fileName, data, 0o600, false)
}
