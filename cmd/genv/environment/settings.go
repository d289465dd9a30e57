package environment

import (
	"strconv"
	"strings"

	"github.com/urfave/cli/v2"

	"github.com/seed-3119e985/genv/cmd/genv/command"
	"github.com/seed-3119e985/genv/snapshot"
)

// Settings are what an environment can be configured with, in the order in
// which they are listed.
var Settings = []Setting{
	{
		Name: "gpu-memory",
		Get:  func(c *snapshot.EnvConfig) string { return c.GPUMemory.String() },
		Set:  SetMemory,
	},
	{
		Name: "gpus",
		Get:  gpusOf,
		Set:  setGPUs,
	},
	{
		Name: "name",
		Get:  func(c *snapshot.EnvConfig) string { return c.Name },
		Set:  setName,
	},
}

// Setting is one of them; its text is empty if it is not set.
type Setting struct {
	Name string
	Get  func(*snapshot.EnvConfig) string
	Set  func(*snapshot.EnvConfig, string) error
}

// leastMemory is less than any process on a GPU needs. A capacity below it is a number
// without its unit, and enforcement would end all of the environment's processes.
const leastMemory = 1_000_000

// SetMemory sets the memory on each device from a text such as 4g.
func SetMemory(c *snapshot.EnvConfig, text string) error {
	if text == "" {
		c.GPUMemory = snapshot.Memory{}
		return nil
	}
	memory, err := snapshot.ParseMemory(text)
	if err == nil && memory.Bytes() == 0 {
		return command.UsageError("gpu-memory %q: write what you need on each device, such as 4g", text)
	}
	if err != nil {
		return command.UsageError("gpu-memory: %w", err)
	}
	if memory.Bytes() < leastMemory {
		return command.UsageError("gpu-memory %q is less than a megabyte: write it with a unit, such as 4g", text)
	}
	c.GPUMemory = memory
	return nil
}

func gpusOf(c *snapshot.EnvConfig) string {
	if c.GPUs == nil {
		return ""
	}
	return strconv.Itoa(*c.GPUs)
}

func setGPUs(c *snapshot.EnvConfig, text string) error {
	if text == "" {
		c.GPUs = nil
		return nil
	}
	n, err := strconv.Atoi(text)
	if err != nil || n < 1 {
		return command.UsageError("gpus %q: write how many devices you need, 1 or more", text)
	}
	c.GPUs = &n
	return nil
}

func setName(c *snapshot.EnvConfig, text string) error {
	if snapshot.CheckName("name", text) != nil {
		return command.UsageError("the name %q is too long, or has characters that can't be shown: choose another one", text)
	}
	c.Name = text
	return nil
}

// SettingNamed is the setting of a name.
func SettingNamed(name string) (Setting, error) {
	names := make([]string, len(Settings))
	for i, s := range Settings {
		if s.Name == name {
			return s, nil
		}
		names[i] = s.Name
	}
	return Setting{}, command.UsageError("unknown setting %q: write one of %s", name, strings.Join(names, " "))
}

// SettingFlags configure a new environment.
func SettingFlags() []cli.Flag {
	return []cli.Flag{
		&cli.StringFlag{Name: "name", Usage: "`NAME` of the environment"},
		&cli.StringFlag{Name: "gpus", Usage: "attach `N` devices"},
		&cli.StringFlag{Name: "gpu-memory", Usage: "`CAPACITY` on each device, such as 4g; shares devices with others"},
	}
}

// ReadSettings puts the flags that were given into a configuration.
func ReadSettings(c *cli.Context, config *snapshot.EnvConfig) error {
	for _, s := range Settings {
		if !c.IsSet(s.Name) {
			continue
		}
		if c.String(s.Name) == "" {
			return command.UsageError("--%s is empty: write a value, or leave it out", s.Name)
		}
		if err := s.Set(config, c.String(s.Name)); err != nil {
			return err
		}
	}
	return nil
}

// OverSubscribeFlag lets devices be attached beyond their capacity.
func OverSubscribeFlag() cli.Flag {
	return &cli.BoolFlag{
		Name: "over-subscribe", Aliases: []string{"o", "allow-over-subscription"},
		Usage: "attach devices even if they are full, as with GENV_ALLOW_OVER_SUBSCRIPTION=1",
	}
}

// OverSubscribe reads that flag, and the variable with which 1.4.3 says the same.
func OverSubscribe(c *cli.Context, getenv func(string) string) bool {
	return c.Bool("over-subscribe") || getenv("GENV_ALLOW_OVER_SUBSCRIPTION") == "1"
}
