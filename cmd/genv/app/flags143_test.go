package app_test

import (
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/seed-3119e985/genv/cmd/genv/app"
	"github.com/seed-3119e985/genv/cmd/genv/command"
)

// flags143 are the long flags of genv 1.4.3's commands, with those that it takes but hides.
const flags143 = `
activate: help shell eid id name gpu-memory gpus no-prompt no-attach over-subscribe no-load
attach: help config count index refresh over-subscribe
config: help quiet refresh clear load save
deactivate: help shell
detach: help index
devices: help no-cleanup reset
devices attach: help eid allow-over-subscription count index
devices detach: help eid index quiet
devices find: help eid
devices ps: help no-header timestamp format
devices query: help query queries
enforce: help interval non-env-processes no-non-env-processes env-devices no-env-devices env-memory no-env-memory max-devices-per-user max-devices-for-user
envs: help no-cleanup reset
envs activate: help eid uid username pid kernel-id
envs config: help eid
envs deactivate: help pid kernel-id
envs find: help pid kernel-id
envs ps: help no-header timestamp format
envs query: help eid query queries
home: help quiet
llm: help
llm attach: help
llm ps: help no-header timestamp format
llm serve: help host port gpus gpu-memory
monitor: help config-dir port interval
remote: help host hostfile username timeout exit-on-error quiet
remote activate: help name gpus no-prompt
remote devices: help no-header no-summary format
remote enforce: help interval non-env-processes no-non-env-processes env-devices no-env-devices env-memory no-env-memory max-devices-per-user max-devices-for-user
remote envs: help no-header no-summary timestamp format
remote llm: help
remote llm attach: help
remote llm ps: help no-header no-summary timestamp format
remote llm serve: help gpus
remote monitor: help config-dir port interval
remote query: help name query queries
shell: help init deinit ok reattach reconfigure
status: help
usage execute: help
usage snapshot: help format type
version: help
`

// TestAbbreviationsOf143: what was a unique abbreviation in 1.4.3 means the same here,
// whatever flags we have besides.
func TestAbbreviationsOf143(t *testing.T) {
	p := command.Program{Getenv: os.Getenv}
	tried := 0
	for line := range strings.SplitSeq(strings.TrimSpace(flags143), "\n") {
		name, list, _ := strings.Cut(line, ":")
		flags, words := strings.Fields(list), strings.Fields(name)
		place := command.PlaceAfter(app.New(p), words)
		for _, flag := range flags {
			for length := 1; length <= len(flag); length++ {
				prefix := flag[:length]
				same := slices.DeleteFunc(slices.Clone(flags), func(f string) bool { return !strings.HasPrefix(f, prefix) })
				if len(same) > 1 && prefix != flag {
					continue
				}
				found := place.Flag("--" + prefix)
				require.NotNil(t, found, "%s --%s", name, prefix)
				require.Contains(t, found.Names(), flag, "%s --%s", name, prefix)
				tried++
			}
		}
	}
	require.Greater(t, tried, 500)
}
