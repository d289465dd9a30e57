package command

import "cmp"

// removed says, for a flag or command that an earlier version had, what to use instead. Commands are
// named in full, flags as people type them.
var removed = map[string]string{
	"--bundle":                "attach the output of --format json instead",
	"--fair-share":            "use --by user",
	"--record":                tryPolicy,
	"--record-keep":           tryPolicy,
	"--record-max":            tryPolicy,
	"--shards":                "leave it out: one controller enforces all hosts; start it once with --take-over",
	"--web-auth":              "use --web-config FILE",
	"--web-tls-cert":          "use --web-config FILE",
	"--web-tls-key":           "use --web-config FILE",
	"genv extend":             "ask an administrator, who can use genv remote exempt --for",
	"genv policy try":         tryPolicy,
	"genv remote controllers": "use genv remote doctor",
	"genv report":             "use genv remote report on the controller",
}

// tryPolicy is how to see what another policy would do.
const tryPolicy = "run genv remote enforce --dry-run --policy FILE alongside the controller (docs/policy.md)"

// Instead says what to use instead of a flag, or a command of `genv remote`, that an earlier version had. It is
// named as in config.yaml, and the answer is empty for others.
func Instead(key string) string { return cmp.Or(removed["--"+key], removed["genv remote "+key]) }

// unknownError is the error for a flag or command that there isn't: what replaced it, if an earlier
// version had it, or the nearest one, or where all are listed.
func unknownError(kind, shown, key, near, parent string) error {
	switch instead := removed[key]; {
	case instead != "":
		return UsageError("unknown %s %s: %s", kind, shown, instead)
	case near != "":
		return UsageError("unknown %s %s (did you mean %s?)", kind, shown, near)
	default:
		return UsageError("unknown %s %s; see %s --help", kind, shown, parent)
	}
}
