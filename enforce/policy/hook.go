package policy

import (
	"net/url"
	"path/filepath"
	"time"

	"github.com/seed-3119e985/genv/snapshot/strictyaml"
)

// readHook reads an item of `hooks:`.
func (r *reader) readHook(n *strictyaml.Node) {
	hook := Hook{
		On: []Event{OnWarn, OnAct, OnHold}, Timeout: 5 * time.Second, Retries: 2,
		From: Source{Place: n.Place(), By: "hooks"},
	}
	targets := 0
	n.Map(strictyaml.Keys{
		"command": func(n *strictyaml.Node) { hook.Command = readCommand(n); targets++ },
		"webhook": func(n *strictyaml.Node) { hook.Webhook = readURL(n); targets++ },
		"slack":   func(n *strictyaml.Node) { hook.Webhook, hook.Slack = readURL(n), true; targets++ },
		"events": func(n *strictyaml.Node) {
			hook.On = nil
			n.List(func(n *strictyaml.Node) {
				hook.On = append(hook.On, Event(n.OneOf(string(OnWarn), string(OnAct), string(OnHold))))
			})
		},
		"timeout": func(n *strictyaml.Node) { hook.Timeout = n.Duration(100*time.Millisecond, time.Minute) },
		"retries": func(n *strictyaml.Node) { hook.Retries = n.Int(0, 10) },
	}, strictyaml.Keys{"format": r.ignore("format", "use `slack:` to write to a chat")})
	if n.IsMap() && targets != 1 {
		n.Failf("a hook is one of command, webhook and slack; write `command: [/usr/local/bin/notify]`, " +
			"`webhook: https://…` or `slack: https://…`")
	}
	r.file.Hooks = append(r.file.Hooks, hook)
}

// readCommand reads a program and its arguments. It is run without a shell and
// without a search path, so that only the policy file decides what runs.
func readCommand(n *strictyaml.Node) []string {
	var command []string
	n.List(func(n *strictyaml.Node) { command = append(command, n.Text()) })
	if n.IsList() && (len(command) == 0 || !filepath.IsAbs(command[0])) {
		n.Failf("the command begins with the full path of a program, as in [/usr/local/bin/notify, --quiet]")
	}
	return command
}

func readURL(n *strictyaml.Node) string {
	text := n.Text()
	u, err := url.Parse(text)
	if text != "" && (err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https") {
		n.Failf("%q is not a web address; write it as https://chat.example.org/hooks/1", text)
		return ""
	}
	return text
}
