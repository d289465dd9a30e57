// Genv143 is a genv for simulated hosts that speaks the formats of genv 1.4.3 and nothing
// else. It was written from that program's recorded behaviour: it waits for the lock as
// long as needed, writes state files in place, drops environments whose processes are
// gone, believes what a process claims, and signals whatever has the PID of a report.
//
// It knows `version`, `usage snapshot`, `usage execute`, `envs activate`, `devices attach` and
// `devices detach`, with the flags that tests use.
package main

import (
	"errors"
	"fmt"
	"os"
	"strings"

	"github.com/seed-3119e985/genv/remote/testfleet"
	"github.com/seed-3119e985/genv/remote/testfleet/gpus"
)

func main() {
	h := host{&testfleet.Machine{State: os.Getenv("GENV_TMPDIR"), GPUs: os.Getenv(gpus.EnvFile)}, os.Stdin, os.Stdout, os.Getenv("USER")}
	if err := h.run(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(2)
	}
}

func (h host) run(args []string) error {
	if len(args) == 1 && args[0] == "version" {
		_, err := fmt.Fprintln(h.out, "1.4.3")
		return err
	}
	if len(args) < 2 {
		return errors.New("usage: genv [-h] SUBCOMMAND")
	}
	flags, err := parse(args[2:])
	if err != nil {
		return err
	}
	switch command := strings.Join(args[:2], " "); command {
	case "usage snapshot":
		return h.snapshot(flags["type"])
	case "usage execute":
		return h.execute()
	case "envs activate":
		return h.activate(flags)
	case "devices attach":
		return h.attach(flags)
	case "devices detach":
		return h.detach(flags)
	}
	return fmt.Errorf("genv %s: error: argument SUBCOMMAND: invalid choice: '%s'", args[0], args[1])
}

// parse reads flags that all have a value.
func parse(words []string) (map[string]string, error) {
	flags := make(map[string]string)
	for i := 0; i < len(words); i += 2 {
		name, ok := strings.CutPrefix(words[i], "--")
		if !ok || i+1 == len(words) {
			return nil, fmt.Errorf("genv: error: unrecognized arguments: %s", words[i])
		}
		flags[name] = words[i+1]
	}
	return flags, nil
}
