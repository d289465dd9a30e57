package policy

import (
	"net/url"
	"path/filepath"
	"time"

	"github.com/seed-3119e985/genv/snapshot/strictyaml"
)

// HookEvent is an event that a hook is called for.
type HookEvent string

// The events.
const (
	OnWarn  HookEvent = "warn" // findings are new, and are not acted on yet
	OnAct   HookEvent = "act"  // orders were carried out, or their outcome is unknown
	OnLimit HookEvent = "hold" // safety limits held actions against users or on hosts back
)

// Hook is a program or a URL that gets events as JSON.
type Hook struct {
	Command []string // a program with its arguments, which reads stdin
	Webhook string   // a URL to which it is posted; one of the two is set
	Slack   bool     // the URL is an incoming webhook of Slack or Mattermost, and gets a message for people
	On      []HookEvent
	Timeout time.Duration // for each try
	Retries int           // after the first try
}

func (r *reader) readHook(n *strictyaml.Node) {
	hook := Hook{On: []HookEvent{OnWarn, OnAct, OnLimit}, Timeout: 5 * time.Second, Retries: 2}
	targets := 0
	n.Map(strictyaml.Keys{
		"command": func(n *strictyaml.Node) { hook.Command = readCommand(n); targets++ },
		"webhook": func(n *strictyaml.Node) { hook.Webhook = readURL(n); targets++ },
		"slack":   func(n *strictyaml.Node) { hook.Webhook, hook.Slack = readURL(n), true; targets++ },
		"events": func(n *strictyaml.Node) {
			hook.On = nil
			n.List(func(n *strictyaml.Node) {
				hook.On = append(hook.On, HookEvent(n.OneOf(string(OnWarn), string(OnAct), string(OnLimit))))
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

// A command runs without a shell and a search path: only the file decides.
func readCommand(n *strictyaml.Node) []string {
	var command []string
	n.List(func(n *strictyaml.Node) { command = append(command, n.Text()) })
	if n.IsList() && (len(command) == 0 || !filepath.IsAbs(command[0])) {
		n.Failf("the command begins with the full path of a program, as in [/usr/local/bin/notify, --quiet]")
	}
	return command
}

func readURL(n *strictyaml.Node) string {
	return readAs(n, "a web address; write it as https://chat.example.org/hooks/1", func(s string) bool {
		u, err := url.Parse(s)
		return err == nil && u.Host != "" && (u.Scheme == "http" || u.Scheme == "https")
	})
}
