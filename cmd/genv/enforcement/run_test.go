package enforcement

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/rs/zerolog"
	"github.com/stretchr/testify/require"

	"github.com/seed-3119e985/genv/cmd/genv/command"
	"github.com/seed-3119e985/genv/cmd/genv/render"
	"github.com/seed-3119e985/genv/enforce/notify"
	"github.com/seed-3119e985/genv/enforce/policy"
)

// Hooks still get the events that were queued for them before the policy was reloaded.
func TestHooksGetWhatWasQueuedBeforeAReload(t *testing.T) {
	dir := t.TempDir()
	text := "#!/bin/sh\nsleep 0.3; echo told >> " + dir + "/out\n"
	require.NoError(t, os.WriteFile(filepath.Join(dir, "hook"), []byte(text), 0o700))
	file := policy.Default()
	file.Hooks = []policy.Hook{{Command: []string{filepath.Join(dir, "hook")}, On: []policy.Event{policy.OnAct}, Timeout: time.Minute}}
	ctx, service := startService(t.Context(), zerolog.Nop(), false)
	defer service.close()
	require.NoError(t, ctx.Err())
	l := &loop{program: &command.Program{}, service: service, memory: &keeper{}}
	fleet := Fleet{Progress: &render.Progress{}}
	l.controller(Setup{Config: Config{Policy: file}, Fleet: fleet})
	l.hooks.Send(notify.Event{Name: "act"})
	l.hooks.Send(notify.Event{Name: "act"})
	begun := time.Now()
	l.controller(Setup{Config: Config{Policy: policy.Default()}, Fleet: fleet})
	require.Less(t, time.Since(begun), hooksTimeout, "the end does not wait for it")
	l.close()
	out, err := os.ReadFile(dir + "/out")
	require.NoError(t, err)
	require.Equal(t, "told\ntold\n", string(out))
}
