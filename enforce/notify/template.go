package notify

import (
	"errors"
	"fmt"
	"strings"
	"text/template"
	"time"
)

// TemplateKind says where a template is used. The texts are keys of the policy.
type TemplateKind string

// The kinds.
const (
	MailSubject TemplateKind = "mail-subject"
	MailBody    TemplateKind = "mail-body"
	Terminal    TemplateKind = "terminal"
)

// TemplateKinds are all kinds, in the order of the documentation.
var TemplateKinds = []TemplateKind{MailSubject, MailBody, Terminal}

// limits are how many bytes a template may write.
func (k TemplateKind) limit() int {
	switch k {
	case MailSubject:
		return 500
	case Terminal:
		return 4 << 10
	case MailBody:
	}
	return 64 << 10
}

// Template is a parsed template. The nil Template fails.
type Template struct {
	kind   TemplateKind
	parsed *template.Template
}

// functions are what templates may call besides those of text/template.
var functions = template.FuncMap{"clock": Clock}

// ParseTemplate parses a template, and tries it out on samples. The error says what is wrong;
// Line of a *TemplateError is the line in the template.
func ParseTemplate(kind TemplateKind, source string) (*Template, error) {
	parsed, err := template.New(string(kind)).Funcs(functions).Option("missingkey=error").Parse(source)
	if err != nil {
		return nil, parseError(err)
	}
	t := &Template{kind, parsed}
	for _, sample := range samples() {
		if _, err := t.execute(sample); err != nil {
			return nil, parseError(err)
		}
	}
	return t, nil
}

// TemplateError is an error in a template.
type TemplateError struct {
	Line    int // 1 for the first
	Message string
}

func (e *TemplateError) Error() string { return fmt.Sprintf("line %d: %s", e.Line, e.Message) }

// parseError finds the line in an error of text/template, as in
// "template: mail-body:3:7: executing …".
func parseError(err error) error {
	e := &TemplateError{Line: 1, Message: strings.TrimPrefix(err.Error(), "template: ")}
	_, rest, found := strings.Cut(e.Message, ":")
	if !found {
		return e
	}
	var line int
	if n, _ := fmt.Sscanf(rest, "%d:", &line); n == 1 {
		e.Line = line
		_, e.Message, _ = strings.Cut(rest, ":")
		var column int
		if n, _ := fmt.Sscanf(e.Message, "%d:", &column); n == 1 {
			_, e.Message, _ = strings.Cut(e.Message, ":")
		}
	}
	e.Message = strings.TrimSpace(e.Message)
	return e
}

// errTooLong ends a template that writes too much, such as one with an endless loop.
var errTooLong = errors.New("it writes too much")

// execute is the text of a notice.
func (t *Template) execute(n Notice) (string, error) {
	out := limited{left: t.kind.limit()}
	if err := t.parsed.Execute(&out, n); err != nil {
		return "", err
	}
	return out.String(), nil
}

type limited struct {
	strings.Builder
	left int
}

func (l *limited) Write(p []byte) (int, error) {
	if l.left -= len(p); l.left < 0 {
		return 0, errTooLong
	}
	return l.Builder.Write(p)
}

// samples are notices of all forms, by which a template is tried out.
func samples() []Notice {
	at := time.Date(2026, 11, 20, 12, 0, 0, 0, time.UTC)
	pending := TemplateFinding{
		ID: "id", Host: "gpu-01", Rule: "non-env-processes", Text: "Process 4242 is not running in a GPU environment",
		Command: `"python train.py"`, Follows: "process 4242 will be ended", Pending: true, Due: at.Add(time.Minute), Since: at, At: at, Advice: "Start it in one.",
	}
	acted := pending
	acted.Pending, acted.Follows = false, "process 4242 gets SIGTERM now"
	written := TemplateFinding{ID: "id", Host: "gpu-01", Text: "root writes", At: at}
	return []Notice{
		{User: "alice", Contact: "admin@example.org", Findings: []TemplateFinding{pending}},
		{User: "alice", Findings: []TemplateFinding{acted, pending, written}, More: 3, Digest: true},
		{User: "uid 1004", Findings: []TemplateFinding{written}},
	}
}

// Templates are the templates of a policy, by kind. Those that are missing are built in. The
// nil Templates have none.
type Templates map[TemplateKind]*Template

// Text is the text of a notice by its template. Without one it is built in; also if the
// template fails, and then failed is called.
func (s Templates) Text(kind TemplateKind, n Notice, builtIn func(Notice) string, failed func(error)) string {
	t := s[kind]
	if t == nil {
		return builtIn(n)
	}
	text, err := t.execute(n)
	if err == nil && strings.TrimSpace(text) == "" {
		err = fmt.Errorf("it writes nothing")
	}
	if err != nil {
		if failed != nil {
			failed(fmt.Errorf("the template %s failed, and the built-in text is used: %w", kind, err))
		}
		return builtIn(n)
	}
	return text
}
