package container

import (
	"slices"
	"strings"
)

// call is a command line of runc, of which the runtime needs to know what starts containers.
type call struct {
	args    []string
	command string // "create", for example; empty if there is none
	bundle  string
	id      string
	log     string // the file for errors that the engine shows; empty for none
}

// The flags of runc(8) and crun(1) that have a value: before the command, and of create and
// run. All others are switches, or have their value after "=".
var (
	globalValued = []string{"log", "log-format", "log-level", "root", "criu", "rootless", "cgroup-manager"}
	createValued = []string{"bundle", "b", "console-socket", "pid-file", "preserve-fds", "config", "f"}
)

// starts says whether the command creates a container.
func (c *call) starts() bool { return c.command == "create" || c.command == "run" }

// parse reads a command line of runc, without the program's name.
func parse(args []string) *call {
	c := &call{args: args, bundle: "."}
	flags, rest := take(args, globalValued)
	c.log = flags["log"]
	if len(rest) == 0 {
		return c
	}
	c.command = rest[0]
	if !c.starts() {
		return c
	}
	flags, rest = take(rest[1:], createValued)
	for _, name := range []string{"bundle", "b"} {
		if flags[name] != "" {
			c.bundle = flags[name]
		}
	}
	if len(rest) > 0 {
		c.id = rest[0]
	}
	return c
}

// take takes flags from the beginning, and returns the values of those that have one.
func take(args, valued []string) (flags map[string]string, rest []string) {
	flags = map[string]string{}
	for len(args) > 0 && len(args[0]) > 1 && args[0][0] == '-' {
		word := args[0]
		args = args[1:]
		if word == "--" {
			break
		}
		name, value, joined := strings.Cut(strings.TrimLeft(word, "-"), "=")
		if !joined && slices.Contains(valued, name) && len(args) > 0 {
			value, args = args[0], args[1:]
		}
		flags[name] = value
	}
	return flags, args
}
