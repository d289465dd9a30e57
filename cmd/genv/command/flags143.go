package command

import (
	"slices"
	"strings"

	"github.com/urfave/cli/v2"
)

// in143 are those of a command's flags that genv 1.4.3 has too: what was a unique
// abbreviation there must not become ambiguous because we have more flags.
func in143(path []*cli.Command, flags []string) []string {
	var words []string
	for _, cmd := range path {
		words = append(words, cmd.Name)
	}
	old := strings.Fields(flags143(strings.Join(words, " ")))
	return slices.DeleteFunc(slices.Clone(flags), func(flag string) bool {
		return !slices.Contains(old, strings.TrimPrefix(flag, "--"))
	})
}

// flags143 are the long flags of a command of 1.4.3.
func flags143(command string) string {
	const rules = "non-env-processes no-non-env-processes env-devices no-env-devices env-memory no-env-memory max-devices-per-user max-devices-for-user"
	switch command {
	case "activate":
		return "help eid id name gpu-memory gpus no-prompt no-attach over-subscribe no-load"
	case "attach":
		return "help config count index refresh over-subscribe"
	case "config":
		return "help quiet refresh clear load save"
	case "devices", "envs":
		return "help no-cleanup reset"
	case "devices attach":
		return "help eid allow-over-subscription count index"
	case "devices detach":
		return "help eid index quiet"
	case "devices ps", "envs ps", "llm ps":
		return "help no-header timestamp format"
	case "envs activate":
		return "help eid uid username pid kernel-id"
	case "envs config":
		return "help eid"
	case "enforce", "remote enforce":
		return "help interval " + rules
	case "llm serve":
		return "help host port gpus gpu-memory"
	case "monitor", "remote monitor":
		return "help config-dir port interval"
	case "remote":
		return "help host hostfile username timeout exit-on-error quiet"
	case "remote activate":
		return "help name gpus no-prompt"
	case "remote devices":
		return "help no-header no-summary format"
	case "remote envs", "remote llm ps":
		return "help no-header no-summary timestamp format"
	case "remote llm serve":
		return "help gpus"
	case "remote query":
		return "help name query queries"
	case "usage snapshot":
		return "help format type"
	}
	return ""
}
