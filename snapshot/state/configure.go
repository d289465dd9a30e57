package state

import (
	"fmt"

	"github.com/seed-3119e985/genv/snapshot"
)

// Configure replaces the configuration of an environment; attachments that it
// has already stay as they are. The error wraps ErrNoEnvironment or ErrRequest.
func (b *Files) Configure(eid snapshot.EnvID, config snapshot.EnvConfig) error {
	env, err := b.registered(eid)
	if err != nil {
		return err
	}
	if err := checkConfig(config); err != nil {
		return err
	}
	env.Config = config
	return nil
}

// checkConfig refuses what no environment can have.
func checkConfig(c snapshot.EnvConfig) error {
	if err := snapshot.CheckName("the name", c.Name); err != nil {
		return fmt.Errorf("%w: %w", ErrRequest, err)
	}
	if c.GPUs != nil && *c.GPUs < 1 {
		return fmt.Errorf("%w: %d devices: ask for at least 1", ErrRequest, *c.GPUs)
	}
	return nil
}
