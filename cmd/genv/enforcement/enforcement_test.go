package enforcement

import (
	"flag"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/urfave/cli/v2"

	"github.com/seed-3119e985/genv/cmd/genv/command"
	"github.com/seed-3119e985/genv/enforce/policy"
	"github.com/seed-3119e985/genv/remote/controller"
)

// A policy that is read again does not take from the hooks what they were to be
// told under the one before.
func TestHooksHearToTheEndWhatWasSaidBeforeAReload(t *testing.T) {
	dir := t.TempDir()
	text := "#!/bin/sh\nsleep 0.3; echo told >> " + dir + "/out\n"
	require.NoError(t, os.WriteFile(filepath.Join(dir, "hook"), []byte(text), 0o700))
	file := policy.Default()
	file.Hooks = []policy.Hook{{Command: []string{filepath.Join(dir, "hook")}, On: []policy.Event{policy.OnAct}, Timeout: time.Minute}}
	e := &Enforcement{
		program: &command.Program{Err: os.Stderr, Getenv: os.Getenv}, fleet: &Fleet{Controller: &controller.Controller{}},
		context: cli.NewContext(cli.NewApp(), flag.NewFlagSet("", 0), nil),
	}
	e.enact(file)
	e.hooks.Tell("act", nil)
	e.hooks.Tell("act", nil)
	begun := time.Now()
	e.enact(policy.Default())
	require.Less(t, time.Since(begun), hookPatience, "nobody waits for that")
	e.Close()
	out, err := os.ReadFile(dir + "/out")
	require.NoError(t, err)
	require.Equal(t, "told\ntold\n", string(out))
}
