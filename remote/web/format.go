package web

import (
	"fmt"
	"html/template"
	"net/url"
	"reflect"
	"strconv"
	"strings"
	"time"

	"github.com/seed-3119e985/genv/enforce"
	"github.com/seed-3119e985/genv/remote/agent"
	"github.com/seed-3119e985/genv/remote/live"
	"github.com/seed-3119e985/genv/remote/usage"
	"github.com/seed-3119e985/genv/snapshot"
	"github.com/seed-3119e985/genv/snapshot/gpus"
	"github.com/seed-3119e985/genv/snapshot/text"
)

const (
	maxCommand = 80 // characters
	maxLine    = 400
)

var functions = template.FuncMap{
	"ago": ago, "span": span, "bytes": bytesText, "memory": memoryText, "name": name, "host": hostName, "model": model,
	"line": line, "userPath": userPath, "hostPath": hostPath, "memoryBar": memoryBar, "share": usage.Percent,
	"bar": bar, "words": words, "usageHours": usage.Hours, "usageTime": usage.ShortTime, "round": roundHours,
	"first": first, "more": more, "due": due,
	"clock":     func(t time.Time) string { return t.Local().Format("15:04:05") },
	"when":      func(t time.Time) string { return t.Local().Format("Mon 2 Jan 15:04") },
	"stamp":     func(t time.Time) string { return t.Format(time.RFC3339) }, // for programs
	"command":   func(s string) string { return text.Shorten(text.OneLine(s), maxCommand) },
	"kind":      func(k enforce.EventKind) string { return strings.ReplaceAll(string(k), "-", " ") },
	"decision":  func(d enforce.Decision) string { return decisions[d] },
	"state":     func(s gpus.State) string { return states[s] },
	"rule":      func(r enforce.Rule) string { return line(string(r)) },
	"via":       func(via agent.Via) string { return unusual[via] },
	"usageName": func(by, key string) string { return line(usage.Shown(by, key)) },
}

const maxItems = 20 // limit of lists, unless a template has another: hosts and users can make them arbitrarily long

// first is a list's start; more counts the rest.
func first(list any, most ...int) any {
	v := reflect.ValueOf(list)
	return v.Slice(0, v.Len()-more(list, most...)).Interface()
}

func more(list any, most ...int) int {
	return max(0, reflect.ValueOf(list).Len()-append(most, maxItems)[0])
}

func ago(now, t time.Time) string {
	if t.IsZero() {
		return "never"
	}
	return span(now.Sub(t)) + " ago"
}

func span(d time.Duration) string {
	d = max(d, 0)
	switch s := int64(d / time.Second); {
	case s < 60:
		return fmt.Sprintf("%d s", s)
	case s < 3600:
		return fmt.Sprintf("%d min", s/60)
	case s < 86400:
		return fmt.Sprintf("%d h %d min", s/3600, s/60%60)
	default:
		return fmt.Sprintf("%d d %d h", s/86400, s/3600%24)
	}
}

func bytesText(value any) string {
	switch v := value.(type) {
	case int64:
		return text.GiB(v)
	case *int64:
		if v != nil {
			return text.GiB(*v)
		}
	}
	return "–"
}

func memoryText(used, total *int64) string {
	switch {
	case used == nil && total == nil:
		return "–"
	case used == nil || total == nil:
		return bytesText(used) + " of " + bytesText(total)
	}
	return fmt.Sprintf("%.1f of %.0f GiB", float64(*used)/(1<<30), float64(*total)/(1<<30))
}

func name(of any) string { return gpus.ShownUser(snapshot.Username(fmt.Sprint(of))) }

func hostName(h snapshot.Hostname) string { return text.Shorten(text.Printable(string(h)), 64) }

func model(s string) string {
	if s == "" {
		return "unknown model"
	}
	return text.Shorten(text.OneLine(gpus.ShortModel(s)), 40)
}

func line(s string) string { return text.Shorten(text.OneLine(s), maxLine) }

// userPath is empty for a name that fits into no path.
func userPath(user snapshot.Username) string { return pathOf("/u/", string(user)) }

func hostPath(host snapshot.Hostname) string { return pathOf("/h/", string(host)) }

func pathOf(prefix, name string) string {
	if name == "" || name == "." || name == ".." || len(name) > maxUserName {
		return ""
	}
	return prefix + url.PathEscape(name)
}

var decisions = map[enforce.Decision]string{
	enforce.DecisionAct: "acts now", enforce.DecisionWait: "waiting", enforce.DecisionHold: "kept back",
	enforce.DecisionDryRun: "dry run", enforce.DecisionStuck: "stuck", enforce.DecisionUnderWay: "under way",
	enforce.DecisionNone: "reported",
}

var states = map[gpus.State]string{
	gpus.Free: "free", gpus.Attached: "attached, not used", gpus.Idle: "idle", gpus.Busy: "busy",
	gpus.Unknown: "unknown", gpus.Failed: "failed", gpus.Unusable: "unusable", gpus.MIG: "MIG, not used",
}

var unusual = map[agent.Via]string{
	agent.ViaCommands: "an older genv", agent.ViaReadOnly: "no genv on this host: nothing is enforced there",
}

func roundHours(seconds int64) string {
	const many = 1000
	if seconds < many*3600 {
		return usage.Hours(seconds)
	}
	return strconv.FormatInt((seconds+1800)/3600, 10)
}

func due(now time.Time, f *live.Finding) string {
	switch {
	case !f.Pending:
		return ""
	case f.Due.IsZero():
		return "not yet known"
	case f.Due.After(now):
		return "in " + span(f.Due.Sub(now))
	}
	return "now"
}
