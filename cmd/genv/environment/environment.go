// Package environment has what commands for this host and for a fleet share about environments.
package environment

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/urfave/cli/v2"

	"github.com/seed-3119e985/genv/cmd/genv/command"
	"github.com/seed-3119e985/genv/snapshot"
)

// Settings are the settings of an environment, in the order of lists.
var Settings = []Configurable{
	{"gpu-memory", func(c *snapshot.EnvConfig) string { return c.GPUMemory.String() }, SetMemory},
	{"gpus", (*snapshot.EnvConfig).GPUCount, setGPUs},
	{"name", func(c *snapshot.EnvConfig) string { return c.Name }, setName},
}

// Configurable is a setting; its text is empty if it isn't set.
type Configurable struct {
	Name string
	Get  func(*snapshot.EnvConfig) string
	Set  func(*snapshot.EnvConfig, string) error
}

// leastMemory is in bytes. No process on a GPU needs less: a smaller number lacks its unit.
const leastMemory = 1_000_000

// SetMemory parses the memory on each device, such as 4g.
func SetMemory(c *snapshot.EnvConfig, text string) error {
	if text == "" {
		c.GPUMemory = snapshot.Memory{}
		return nil
	}
	memory, err := snapshot.ParseMemory(text)
	switch {
	case err != nil:
		return command.UsageError("gpu-memory: %w", err)
	case memory.Bytes() == 0:
		return command.UsageError("gpu-memory %q: write what you need on each GPU, such as 4g", text)
	case memory.Bytes() < leastMemory:
		return command.UsageError("gpu-memory %q is less than a megabyte: write it with a unit, such as 4g", text)
	}
	c.GPUMemory = memory
	return nil
}

func setGPUs(c *snapshot.EnvConfig, text string) error {
	if text == "" {
		c.GPUs = nil
		return nil
	}
	n, err := strconv.Atoi(text)
	if err != nil || n < 1 {
		return command.UsageError("gpus %q: write how many GPUs you need, 1 or more", text)
	}
	c.GPUs = &n
	return nil
}

func setName(c *snapshot.EnvConfig, text string) error {
	if snapshot.CheckName("name", text) != nil {
		return command.UsageError("the name %q is too long, or has characters that can't be shown: choose another one",
			text)
	}
	c.Name = text
	return nil
}

// SettingFlags configure a new environment.
type SettingFlags struct {
	name, gpus, gpuMemory string
	overSubscribe         bool
}

// Flags returns the flags of all settings.
func (o *SettingFlags) Flags() []cli.Flag {
	return append([]cli.Flag{command.String(&o.name, "name", "`NAME` of the environment")}, o.GPUFlags()...)
}

// GPUFlags returns the flags without the name.
func (o *SettingFlags) GPUFlags() []cli.Flag {
	return []cli.Flag{
		command.String(&o.gpus, "gpus", "attach `N` GPUs"),
		command.String(&o.gpuMemory, "gpu-memory", "`CAPACITY` on each GPU, such as 4g; shares GPUs with others"),
	}
}

// Read adds the given flags to a configuration.
func (o *SettingFlags) Read(c *cli.Context, config *snapshot.EnvConfig) error {
	values := map[string]string{"name": o.name, "gpus": o.gpus, "gpu-memory": o.gpuMemory}
	for _, s := range Settings {
		if !c.IsSet(s.Name) {
			continue
		}
		if values[s.Name] == "" {
			return command.UsageError("--%s is empty: write a value, or leave it out", s.Name)
		}
		if err := s.Set(config, values[s.Name]); err != nil {
			return err
		}
	}
	return nil
}

// OverSubscribeFlag lets devices be attached beyond their capacity.
func (o *SettingFlags) OverSubscribeFlag() cli.Flag {
	return command.Bool(&o.overSubscribe, "over-subscribe,o,allow-over-subscription",
		"attach GPUs even if they are full, as with GENV_ALLOW_OVER_SUBSCRIPTION=1")
}

// OverSubscribe is the value of that flag, or of 1.4.3's variable.
func (o *SettingFlags) OverSubscribe(getenv func(string) string) bool {
	return o.overSubscribe || getenv("GENV_ALLOW_OVER_SUBSCRIPTION") == "1"
}

// Document is an environment in JSON.
type Document struct {
	EID            snapshot.EnvID    `json:"eid"`
	UID            snapshot.UID      `json:"uid"`
	User           snapshot.Username `json:"user"` // empty if the host has no name for the uid
	Name           string            `json:"name"`
	Created        string            `json:"created"` // the host's wall clock, YYYY-MM-DDTHH:MM:SS
	GPUs           *int              `json:"gpus"`    // what its owner configured, as gpu_memory_bytes
	GPUMemoryBytes *int64            `json:"gpu_memory_bytes"`
	PIDs           []snapshot.PID    `json:"pids"` // the processes that are active in it
}

// DocumentOf describes an environment.
func DocumentOf(e *snapshot.Environment) Document {
	return Document{
		EID: e.EID, UID: e.UID, User: e.Username, Name: e.Config.Name, Created: e.Creation.ISO(),
		GPUs: e.Config.GPUs, GPUMemoryBytes: Bytes(e.Config.GPUMemory), PIDs: append([]snapshot.PID{}, e.PIDs...),
	}
}

// Bytes is an amount of memory in JSON: nil for unknown.
func Bytes(m snapshot.Memory) *int64 {
	if !m.Known() {
		return nil
	}
	return new(m.Bytes())
}

// Queries are the values of `--query`, with what each prints.
type Queries[T any] map[string]func(*T) string

// Flag is --query.
func (q Queries[T]) Flag(to *[]string) cli.Flag {
	names := slices.Sorted(maps.Keys(q))
	return command.Strings(to, "query,queries",
		"`WHAT` to print, several values allowed: "+strings.Join(names, " ")).OneOf(names...)
}

// Rows are the values of the chosen queries.
func (q Queries[T]) Rows(chosen []string, list []T) [][]string {
	rows := make([][]string, len(list))
	for i := range list {
		for _, name := range chosen {
			rows[i] = append(rows[i], q[name](&list[i]))
		}
	}
	return rows
}

// QueriesOn are queries about environments of a host.
func QueriesOn(host string) Queries[snapshot.Environment] {
	return Queries[snapshot.Environment]{
		"hostname":          func(*snapshot.Environment) string { return host },
		"eid":               func(e *snapshot.Environment) string { return string(e.EID) },
		"uid":               func(e *snapshot.Environment) string { return fmt.Sprint(e.UID) },
		"username":          func(e *snapshot.Environment) string { return string(e.Username) },
		"creation":          func(e *snapshot.Environment) string { return e.Creation.String() },
		"config.name":       func(e *snapshot.Environment) string { return e.Config.Name },
		"config.gpu_memory": func(e *snapshot.Environment) string { return e.Config.GPUMemory.String() },
		"config.gpus":       func(e *snapshot.Environment) string { return e.Config.GPUCount() },
		"pids":              func(e *snapshot.Environment) string { return JoinPIDs(e.PIDs) },
		"kernel_ids":        func(e *snapshot.Environment) string { return strings.Join(e.KernelIDs, " ") },
	}
}

// JoinPIDs separates processes by spaces.
func JoinPIDs(pids []snapshot.PID) string { return strings.Trim(fmt.Sprint(pids), "[]") }
