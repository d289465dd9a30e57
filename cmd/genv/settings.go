package main

import (
	"strconv"
	"strings"

	"github.com/urfave/cli/v2"

	"github.com/seed-3119e985/genv/snapshot"
)

// settings are what an environment can be configured with, in the order in
// which they are listed.
var settings = []setting{
	{
		name: "gpu-memory",
		get:  func(c *snapshot.EnvConfig) string { return c.GPUMemory.String() },
		set:  setMemory,
	},
	{
		name: "gpus",
		get: func(c *snapshot.EnvConfig) string {
			if c.GPUs == nil {
				return ""
			}
			return strconv.Itoa(*c.GPUs)
		},
		set: setGPUs,
	},
	{
		name: "name",
		get:  func(c *snapshot.EnvConfig) string { return c.Name },
		set:  setName,
	},
}

// setting is one of them; the empty text stands for none.
type setting struct {
	name string
	get  func(*snapshot.EnvConfig) string
	set  func(*snapshot.EnvConfig, string) error
}

func setMemory(c *snapshot.EnvConfig, text string) error {
	if text == "" {
		c.GPUMemory = snapshot.Memory{}
		return nil
	}
	memory, err := snapshot.ParseMemory(text)
	if err == nil && memory.Bytes() == 0 {
		return usage("gpu-memory %q is no memory at all: write what you need on each device, such as 4g", text)
	}
	if err != nil {
		return usage("gpu-memory: %w", err)
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
		return usage("gpus %q: write how many devices you need, 1 or more", text)
	}
	c.GPUs = &n
	return nil
}

func setName(c *snapshot.EnvConfig, text string) error {
	if snapshot.CheckName("name", text) != nil {
		return usage("the name %q is too long, or has characters that no terminal shows: choose another one", text)
	}
	c.Name = text
	return nil
}

func settingNamed(name string) (setting, error) {
	names := make([]string, len(settings))
	for i, s := range settings {
		if s.name == name {
			return s, nil
		}
		names[i] = s.name
	}
	return setting{}, usage("there is no setting %q: write one of %s", name, strings.Join(names, " "))
}

// settingFlags are those with which an environment is begun.
func settingFlags() []cli.Flag {
	return []cli.Flag{
		&cli.StringFlag{Name: "name", Usage: "`NAME` of the environment"},
		&cli.StringFlag{Name: "gpus", Usage: "attach `N` devices"},
		&cli.StringFlag{Name: "gpu-memory", Usage: "`CAPACITY` on each device, such as 4g; shares devices with others"},
	}
}

// readSettings puts the flags that were given into a configuration.
func readSettings(c *cli.Context, config *snapshot.EnvConfig) error {
	for _, s := range settings {
		if !c.IsSet(s.name) {
			continue
		}
		if c.String(s.name) == "" {
			return usage("--%s is empty: leave it out, or write a value", s.name)
		}
		if err := s.set(config, c.String(s.name)); err != nil {
			return err
		}
	}
	return nil
}
