package notify_test

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-3119e985/genv/enforce/notify"
)

func parse(t *testing.T, kind notify.TemplateKind, source string) notify.Templates {
	t.Helper()
	parsed, err := notify.ParseTemplate(kind, source)
	require.NoError(t, err)
	return notify.Templates{kind: parsed}
}

func TestTemplates(t *testing.T) {
	at := time.Date(2026, 11, 20, 12, 0, 0, 0, time.Local)
	n := notify.Notice{User: "alice", Findings: []notify.TemplateFinding{{Host: "a", Text: "x <y>", Rule: "idle", At: at, Due: at.Add(time.Minute), Pending: true, Follows: "device 0 will be detached"}}}
	builtIn := func(notify.Notice) string { return "built in" }
	set := parse(t, notify.Terminal, "{{range .Findings}}{{.Host}} {{.Text}}: {{.Outcome}}{{end}}")
	require.Equal(t, "a x <y>: Unless this changes, at "+notify.Clock(at.Add(time.Minute))+": device 0 will be detached.", set.Text(notify.Terminal, n, builtIn, nil))
	require.Equal(t, "built in", set.Text(notify.MailBody, n, builtIn, nil), "another kind")
	for _, source := range []string{`{{if eq .User "zoe"}}{{index .Findings 7}}{{else}}x{{end}}`, `{{if eq .User "zoe"}}  {{else}}x{{end}}`} {
		var failed error
		n := n
		n.User = "zoe"
		set := parse(t, notify.MailBody, source)
		text := set.Text(notify.MailBody, n, builtIn, func(err error) { failed = err })
		require.Equal(t, "built in", text)
		require.ErrorContains(t, failed, "the template mail-body failed, and the built-in text is used")
	}
}

func TestTemplatesThatAreRefused(t *testing.T) {
	for source, line := range map[string]int{"{{.Usr}}": 1, "a\n\n{{nope}}": 3, "{{range .Findings}}\n{{.Tetx}}\n{{end}}": 2, "{{": 1, "a\n{{if}}": 2} {
		_, err := notify.ParseTemplate(notify.MailBody, source)
		var wrong *notify.TemplateError
		require.True(t, errors.As(err, &wrong), source)
		require.Equal(t, line, wrong.Line, source)
		require.NotContains(t, fmt.Sprint(err), "\n")
	}
}

// What is built in names everything, for each kind of notice.
func TestBuiltInMail(t *testing.T) {
	at := time.Date(2026, 11, 20, 12, 0, 0, 0, time.Local)
	f := notify.TemplateFinding{Host: "gpu-01", Rule: "idle", Text: "It is idle.", Command: notify.QuotedCommand("python\nx \"y\""), Follows: "device 0 will be detached", Pending: true, Waits: true, Since: at, At: at, Advice: "Use it."}
	n := notify.Notice{User: "alice", Findings: []notify.TemplateFinding{f}, Contact: "help@example.org"}
	require.Equal(t, "[genv] Action needed: your GPU use on gpu-01", notify.Subject(n))
	require.Equal(t, `Hello alice,

genv noticed this about your GPU use:

* gpu-01: It is idle.
  Seen since  `+notify.Clock(at)+`
  Command     "python x 'y'"
  Outcome     Unless this changes, once all hosts answer: device 0 will be detached.
  What to do  Use it.

`+"`genv history`"+` on the host shows what was done to your processes and devices.
Questions: help@example.org
`, notify.Body(n))
	f.Pending = false
	n.Findings = []notify.TemplateFinding{f}
	require.Equal(t, "[genv] Your GPU use on gpu-01", notify.Subject(n))
	f.Rule = ""
	n.Findings = []notify.TemplateFinding{f}
	require.Equal(t, "[genv] A message about your GPU use on gpu-01", notify.Subject(n))
	for i := range 5 {
		f.Host = fmt.Sprint("h", i)
		n.Findings = append(n.Findings, f)
	}
	n.Digest, n.More = true, 4
	require.Equal(t, "[genv] 10 notices about your GPU use on gpu-01, h0, h1 and 3 more hosts", notify.Subject(n))
	require.Contains(t, notify.Body(n), "And there are 4 more")
}
