package texts_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/stretchr/testify/require"

	"github.com/seed-3119e985/genv/enforce/notify/texts"
)

func TestAMessageToAChatMentionsNoOneAndLinksNothing(t *testing.T) {
	for _, tt := range []struct{ text, want string }{
		{"Process 5 (user bob)", "Process 5 (user bob)"},
		{"<!here> & <@U1>", "&lt;!here&gt; &amp; &lt;@\u200bU1&gt;"},
		{"@channel @here @everyone", "@\u200bchannel @\u200bhere @\u200beveryone"},
		{"<https://evil.example|your bank>", "&lt;https:\u200b//evil.example|your bank&gt;"},
		{"`out of the code` *bold*", "'out of the code' *bold*"},
		{"two\nlines\x1b[2J", `two lines\x1b[2J`},
	} {
		n := texts.Notice{Event: "warn", Findings: []texts.Finding{{Host: "a", Text: tt.text}}}
		require.Equal(t, "*New findings* (1)\n• `a: "+tt.want+"`\n", texts.Set{}.SlackText(n, nil))
	}
}

func TestAMessageToAChatIsShort(t *testing.T) {
	n := texts.Notice{Event: "act", More: 500}
	for range 20 {
		n.Findings = append(n.Findings, texts.Finding{Host: "a", Text: strings.Repeat("é&", 2000)})
	}
	s := texts.Set{}.SlackText(n, nil)
	require.LessOrEqual(t, utf8.RuneCountInString(s), 3900)
	require.True(t, strings.HasPrefix(s, "*Actions* (520)\n"))
}

func FuzzSlack(f *testing.F) {
	for _, s := range []string{"<!channel>", "&lt;", "`", "@here", "\xff\u202e", "a\nb"} {
		f.Add(s, s)
	}
	f.Fuzz(func(t *testing.T, text, host string) {
		s := texts.Set{}.SlackText(texts.Notice{Event: "warn", Findings: []texts.Finding{{Host: host, Text: text}}}, nil)
		require.True(t, utf8.ValidString(s))
		require.NotContains(t, s, "<")
		require.NotContains(t, s, ">")
		require.NotContains(t, s, "@c")
		require.LessOrEqual(t, strings.Count(s, "`"), 2)
		require.LessOrEqual(t, strings.Count(s, "\n"), 2)
	})
}

func parse(t *testing.T, kind texts.Kind, source string) texts.Set {
	t.Helper()
	parsed, err := texts.Parse(kind, source)
	require.NoError(t, err)
	return texts.Set{kind: parsed}
}

func TestTemplates(t *testing.T) {
	at := time.Date(2026, 11, 20, 12, 0, 0, 0, time.Local)
	n := texts.Notice{User: "alice", Findings: []texts.Finding{{Host: "a", Text: "x <y>", Rule: "idle", At: at, Due: at.Add(time.Minute), Pending: true, Follows: "device 0 will be detached"}}}
	set := parse(t, texts.Slack, "{{range .Findings}}{{.Host}} {{.Text}}: {{.Outcome}}{{end}}")
	require.Equal(t, "a x &lt;y&gt;: Unless this changes, at "+texts.Clock(at.Add(time.Minute))+": device 0 will be detached.", set.SlackText(n, nil))

	builtIn := func(texts.Notice) string { return "built in" }
	require.Equal(t, "built in", set.Text(texts.MailBody, n, builtIn, nil), "another kind")
	for _, source := range []string{`{{if eq .User "zoe"}}{{index .Findings 7}}{{else}}x{{end}}`, `{{if eq .User "zoe"}}  {{else}}x{{end}}`} {
		var failed error
		n := n
		n.User = "zoe"
		set := parse(t, texts.MailBody, source)
		text := set.Text(texts.MailBody, n, builtIn, func(err error) { failed = err })
		require.Equal(t, "built in", text)
		require.ErrorContains(t, failed, "the template mail-body failed, and the built-in text is used")
	}
}

func TestTemplatesThatAreRefused(t *testing.T) {
	for source, line := range map[string]int{"{{.Usr}}": 1, "a\n\n{{nope}}": 3, "{{range .Findings}}\n{{.Tetx}}\n{{end}}": 2, "{{": 1, "a\n{{if}}": 2} {
		_, err := texts.Parse(texts.MailBody, source)
		var wrong *texts.ParseError
		require.True(t, errors.As(err, &wrong), source)
		require.Equal(t, line, wrong.Line, source)
		require.NotContains(t, fmt.Sprint(err), "\n")
	}
}

// What is built in names everything, for each kind of notice.
func TestBuiltInMail(t *testing.T) {
	at := time.Date(2026, 11, 20, 12, 0, 0, 0, time.Local)
	f := texts.Finding{Host: "gpu-01", Rule: "idle", Text: "It is idle.", Command: texts.Command("python\nx \"y\""), Follows: "device 0 will be detached", Pending: true, Waits: true, Since: at, At: at, Advice: "Use it."}
	n := texts.Notice{User: "alice", Findings: []texts.Finding{f}, Contact: "help@example.org"}
	require.Equal(t, "[genv] Action needed: your GPU use on gpu-01", texts.Subject(n))
	require.Equal(t, `Hello alice,

genv noticed this about your GPU use:

* gpu-01: It is idle.
  Seen since  `+texts.Clock(at)+`
  Command     "python x 'y'"
  Outcome     Unless this changes, once all hosts answer: device 0 will be detached.
  What to do  Use it.

`+"`genv history`"+` on the host shows what was done to your processes and devices.
Questions: help@example.org
`, texts.Body(n))
	f.Pending = false
	n.Findings = []texts.Finding{f}
	require.Equal(t, "[genv] Your GPU use on gpu-01", texts.Subject(n))
	f.Rule = ""
	n.Findings = []texts.Finding{f}
	require.Equal(t, "[genv] A message about your GPU use on gpu-01", texts.Subject(n))
	for i := range 5 {
		f.Host = fmt.Sprint("h", i)
		n.Findings = append(n.Findings, f)
	}
	n.Digest, n.More = true, 4
	require.Equal(t, "[genv] 10 notices about your GPU use on gpu-01, h0, h1 and 3 more hosts", texts.Subject(n))
	require.Contains(t, texts.Body(n), "And there are 4 more")
}
