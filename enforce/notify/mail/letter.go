package mail

import (
	"fmt"
	netmail "net/mail"
	"slices"
	"strings"
	"sync"
	"text/template"

	gomail "github.com/wneessen/go-mail"

	"github.com/seed-3119e985/genv/enforce/notify"
	"github.com/seed-3119e985/genv/enforce/policy"
	"github.com/seed-3119e985/genv/snapshot/text"
)

const maxHosts = 3 // in a subject

// Non-ASCII text is encoded.
func (l *Letter) message(settings *policy.Mail, address, subject, body string) *gomail.Msg {
	_, domain, _ := strings.Cut(settings.Sender.Address, "@")
	msg := gomail.NewMsg(gomail.WithNoDefaultUserAgent())
	msg.FromMailAddress(&settings.Sender)
	msg.SetGenHeader("To", "<"+address+">") // a copy shows whose mail it is
	msg.BccMailAddress(&netmail.Address{Address: l.To})
	if settings.ReplyTo != "" {
		msg.ReplyToMailAddress(&netmail.Address{Address: settings.ReplyTo})
	}
	msg.Subject(subject)
	msg.SetDateWithValue(l.written)
	msg.SetMessageIDWithValue("genv." + l.id + "@" + domain)
	msg.SetGenHeader("Auto-Submitted", "auto-generated")
	msg.SetGenHeader(gomail.HeaderXAutoResponseSuppress, "All") // as Exchange calls it
	msg.SetBodyString(gomail.TypeTextPlain, text.PrintableLines(body))
	return msg
}

func (l *Letter) subject() string {
	subject := "[genv] Your GPU use"
	switch count := len(l.Items) + l.More; {
	case l.Digest || count > 1:
		subject = fmt.Sprintf("[genv] %d notices about your GPU use", count)
	case l.Test:
		subject = "[test] [genv] A message about your GPU use"
	case count == 1 && l.Items[0].Rule == "":
		subject = "[genv] A message about your GPU use"
	case count == 1 && l.Items[0].Pending:
		subject = "[genv] Action needed: your GPU use"
	}
	hosts := l.hosts()
	switch n := len(hosts) - maxHosts; {
	case n > 0:
		return fmt.Sprintf("%s on %s and %d more hosts", subject, strings.Join(hosts[:maxHosts], ", "), n)
	case len(hosts) > 0:
		return subject + " on " + strings.Join(hosts, ", ")
	}
	return subject
}

func (l *Letter) hosts() (hosts []string) {
	for i := range l.Items {
		if h := text.OneLine(string(l.Items[i].Host)); h != "" && !slices.Contains(hosts, h) {
			hosts = append(hosts, h)
		}
	}
	return hosts
}

// Parsing at first use saves time at each start.
var letterText = sync.OnceValue(func() *template.Template {
	return template.Must(template.New("letter").Funcs(template.FuncMap{
		"line": text.OneLine, "shown": text.Shown, "clock": notify.Clock, "decided": notify.Decided,
		"list": func(s []string) string { return strings.Join(s, ", ") },
	}).Parse(`{{$decision := false}}{{$rule := false -}}
Hello {{printf "%s" .User | shown}},

{{if .Digest}}this is what genv noticed about your GPU use since the last mail:
{{- else}}genv noticed this about your GPU use:{{end}}
{{range .Items}}{{if .Decisions}}{{$decision = true}}{{end}}{{if .Rule}}{{$rule = true}}{{end}}
* {{with .Host}}{{printf "%s" . | line}}: {{end}}{{line .Line}}
  {{if .Since.IsZero}}Time        {{clock .At}}{{else}}Seen since  {{clock .Since}}{{end}}
{{with .Command}}  Command     {{.}}
{{end}}{{with .Outcome}}  Outcome     {{.}}
{{end}}{{with .Advice}}  What to do  {{.}}
{{end}}{{with .Decisions}}  Decision    {{list .}}
{{end}}{{with .Record}}  Recorded:
{{range .}}    {{.}}
{{end}}{{end}}{{end}}{{with .More}}
And there are {{.}} more, which are left out here.
{{end}}
` + "`genv history`" + ` on the host shows what was done to your processes and GPUs.
{{if $decision}}` + "`genv why DECISION`" + ` shows all of a decision.
{{end}}{{if $rule}}{{decided .Contact}}
{{else if .Contact}}Questions: {{.Contact}}
{{end}}`))
})

// Compose returns the subject and the text. What users chose is quoted and escaped.
func (l *Letter) Compose(contact string) (subject, body string) {
	var b strings.Builder
	if err := letterText().Execute(&b, struct {
		*Letter
		Contact string
	}{l, contact}); err != nil {
		return "", err.Error() // which only a wrong template has
	}
	return l.subject(), b.String()
}
