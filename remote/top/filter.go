package top

import (
	"cmp"
	"errors"
	"fmt"
	"math"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/seed-3119e985/genv/snapshot"
	"github.com/seed-3119e985/genv/snapshot/gpus"
	"github.com/seed-3119e985/genv/snapshot/text"
)

// Filter selects rows by conditions on their fields, such as
//
//	host~gpu-1 user=bob util<5 state=finding
//
// The zero Filter selects all rows.
type Filter struct {
	text  string
	terms []condition
}

type condition struct {
	field    *field // nil: a bare word, searched in all texts of a row
	operator string // = != ~ !~ < <= > >=
	value    string // lower case
	number   float64
}

// String is the filter as typed.
func (f Filter) String() string { return f.text }

const maxFilterLength = 1000 // bytes

// ParseFilter reads conditions, separated by spaces, that must all be met: a field, an operator and a value, or just a
// word. Values with spaces need quotation marks. Operators are = and !=, ~ (contains) and !~, and < <= > >= for
// numbers.
func ParseFilter(s string) (Filter, error) {
	if len(s) > maxFilterLength {
		return Filter{}, fmt.Errorf("the filter is longer than %d characters", maxFilterLength)
	}
	f := Filter{text: strings.TrimSpace(s)}
	words, err := splitWords(s)
	if err != nil {
		return Filter{}, err
	}
	for _, word := range words {
		t, err := parseTerm(word)
		if err != nil {
			return Filter{}, err
		}
		f.terms = append(f.terms, t)
	}
	return f, nil
}

func splitWords(s string) (words []string, err error) {
	if strings.Count(s, `"`)%2 > 0 {
		return nil, errors.New(`a closing " is missing`)
	}
	words = regexp.MustCompile(`([^\s\v\x{85}\pZ"]|"[^"]*")+`).FindAllString(s, -1)
	for i := range words {
		words[i] = strings.ReplaceAll(words[i], `"`, "")
	}
	return words, nil
}

// termPattern has a field, an operator (longer ones first) and a value.
var termPattern = text.Pattern(`(?s)^([^=!~<>]*)(!=|!~|<=|>=|[=~<>])(.*)$`)

func parseTerm(word string) (condition, error) {
	if !strings.ContainsAny(word, "=!~<>") {
		return condition{operator: "~", value: strings.ToLower(word)}, nil
	}
	parts := termPattern().FindStringSubmatch(word)
	if parts == nil {
		return condition{}, fmt.Errorf("%s: write != or !~ after the field", text.Shown(word))
	}
	name, t := strings.ToLower(parts[1]), condition{operator: parts[2], value: strings.ToLower(parts[3])}
	i := slices.IndexFunc(fields(), func(f field) bool { return f.name == name })
	switch {
	case i < 0:
		return t, fmt.Errorf("unknown field %s (%s)", text.Shown(name),
			text.Hint(name, fieldNames(), "the fields are "+strings.Join(fieldNames(), " ")))
	case t.value == "":
		return t, fmt.Errorf("%s%s: a value is missing", name, t.operator)
	}
	t.field = &fields()[i]
	return t.check()
}

func (t condition) check() (condition, error) {
	name, number := t.field.name, t.field.number
	switch {
	case number == nil && strings.ContainsAny(t.operator, "<>"):
		return t, fmt.Errorf("%s is a text: compare it with =, !=, ~ or !~", name)
	case number == nil:
		return t, nil
	case strings.Contains(t.operator, "~"):
		return t, fmt.Errorf("%s is a number: compare it with =, !=, <, <=, > or >=", name)
	}
	var err error
	if t.number, err = number(t.value); err != nil {
		return t, fmt.Errorf("%s: %w", name, err)
	}
	return t, nil
}

// matches ignores conditions on fields that the row's tab lacks.
func (f Filter) matches(r *tabRow) bool {
	for i := range f.terms {
		t := &f.terms[i]
		switch {
		case t.field == nil && !t.matches(allTexts(r)):
			return false
		case t.field != nil && slices.Contains(t.field.tabs, r.id.tab) && !t.matches(t.field.values(r)):
			return false
		}
	}
	return true
}

// matches says whether a value meets the condition; for != and !~ all. An unknown number never does.
func (t *condition) matches(list []gpus.Value) bool {
	return slices.ContainsFunc(list, t.meets) != strings.HasPrefix(t.operator, "!")
}

// meets ignores the operator's negation.
func (t *condition) meets(v gpus.Value) bool {
	switch {
	case v.IsNumber:
		is := "<=>"[cmp.Compare(v.Number, t.number)+1]
		return strings.IndexByte(t.operator, is) >= 0
	case strings.ContainsAny(t.operator, "<>"):
		return false
	case strings.HasSuffix(t.operator, "~"):
		return strings.Contains(strings.ToLower(v.Text), t.value)
	}
	return strings.EqualFold(v.Text, t.value)
}

type field struct {
	name   string
	number func(string) (float64, error) // parses a number; nil for texts
	tabs   []tabID
	values func(*tabRow) []gpus.Value
}

func percentOrNumber(s string) (float64, error) {
	n, err := strconv.ParseFloat(strings.TrimSuffix(s, "%"), 64)
	if err != nil || math.IsNaN(n) {
		return 0, fmt.Errorf("%s is not a number", text.Shown(s))
	}
	return n, nil
}

func bytesOf(s string) (float64, error) {
	n, err := text.ParseMemory(s)
	return float64(n), err
}

var fields = sync.OnceValue(func() []field {
	onGPUs, onUsers := []tabID{tabHosts, tabGPUs, tabProcesses}, []tabID{tabUsers}
	onStates := []tabID{tabHosts, tabGPUs, tabFindings, tabProcesses, tabHistory}
	onHosts := append([]tabID{tabFailed}, onStates...)
	return []field{
		{"host", nil, onHosts, func(r *tabRow) []gpus.Value { return texts(r.id.host) }},
		{"user", nil, append(onUsers, onStates...), func(r *tabRow) []gpus.Value { return texts(usersOf(r)...) }},
		{"state", nil, onStates, statesOf},
		{"rule", nil, onStates, rulesOf},
		{"label", nil, []tabID{tabHosts, tabGPUs, tabFindings, tabProcesses, tabFailed}, labels},
		{"model", nil, onGPUs, ofGPUs("model")},
		{"util", percentOrNumber, onGPUs, ofGPUs("util")},
		{"mem", bytesOf, []tabID{tabHosts, tabGPUs, tabUsers, tabProcesses}, memoryOf},
		{"gpu", percentOrNumber, []tabID{tabGPUs, tabFindings, tabProcesses}, indicesOf},
		{"pid", percentOrNumber, []tabID{tabGPUs, tabFindings, tabProcesses, tabHistory}, pids},
		{"command", nil, []tabID{tabGPUs, tabFindings, tabProcesses}, commands},
		{"container", nil, []tabID{tabFindings, tabProcesses}, containers},
		{"free", percentOrNumber, []tabID{tabHosts}, func(r *tabRow) []gpus.Value { return number(free(r.host)) }},
		{"guard", nil, []tabID{tabHosts}, guardOf},
		{"gpus", percentOrNumber, onUsers, func(r *tabRow) []gpus.Value { return number(r.user.Attached) }},
		{"idle", percentOrNumber, onUsers, func(r *tabRow) []gpus.Value { return number(r.user.Idle) }},
		{"event", nil, []tabID{tabHistory}, func(r *tabRow) []gpus.Value { return texts(r.event.Kind) }},
		{"class", nil, []tabID{tabFailed}, func(r *tabRow) []gpus.Value { return texts(r.failure.Class) }},
	}
})

func fieldNames() (names []string) {
	for _, f := range fields() {
		names = append(names, f.name)
	}
	slices.Sort(names)
	return names
}

func ignored(f Filter, tab tabID) (names []string) {
	for i := range f.terms {
		if has := f.terms[i].field; has != nil && !slices.Contains(has.tabs, tab) {
			names = append(names, has.name)
		}
	}
	return names
}

func texts[T ~string](list ...T) (values []gpus.Value) {
	for _, s := range list {
		if s != "" {
			values = append(values, gpus.Value{Text: string(s)})
		}
	}
	return values
}

func number[T ~int | ~int32 | ~int64](n T) []gpus.Value {
	return []gpus.Value{{Number: float64(n), IsNumber: true}}
}

func ofGPUs(name string) func(*tabRow) []gpus.Value {
	columns := gpus.Columns()
	c := &columns[slices.IndexFunc(columns, func(c gpus.Column) bool { return c.Filter == name })]
	return func(r *tabRow) (values []gpus.Value) {
		if r.gpu != nil {
			return c.Values(r.gpu)
		}
		for _, g := range gpusOf(r) {
			values = append(values, c.Values(&gpus.Row{Host: r.id.host, GPU: g})...)
		}
		return values
	}
}

func allTexts(r *tabRow) (values []gpus.Value) {
	for _, f := range fields() {
		if f.number == nil && slices.Contains(f.tabs, r.id.tab) {
			values = append(values, f.values(r)...)
		}
	}
	switch {
	case r.finding != nil:
		return append(values, texts(r.finding.Line)...)
	case r.event != nil:
		return append(values, texts(r.event.Text)...)
	case r.failure != nil:
		return append(values, texts(r.failure.Error)...)
	}
	return values
}

func labels(r *tabRow) (values []gpus.Value) {
	if r.host == nil {
		return nil
	}
	for key, label := range r.host.Labels {
		values = append(values, gpus.Value{Text: key + "=" + label})
	}
	return values
}

func statesOf(r *tabRow) (values []gpus.Value) {
	switch {
	case r.finding != nil:
		return texts(string(r.finding.Decision), "finding")
	case r.event != nil:
		return texts(string(r.event.Decision), string(r.event.Status))
	}
	for _, g := range gpusOf(r) {
		values = append(values, texts(g.State)...)
		if _, exempt := r.scene.Exempt(r.id.host, g); exempt {
			values = append(values, texts("exempt")...)
		}
	}
	if len(rulesOf(r)) > 0 {
		values = append(values, texts("finding")...)
	}
	if r.host.Failure != nil {
		values = append(values, texts("failed")...)
	}
	return values
}

func rulesOf(r *tabRow) (values []gpus.Value) {
	found := r.scene.FindingsOn(r.id.host)
	switch {
	case r.finding != nil:
		return texts(r.finding.Rule)
	case r.event != nil:
		return texts(r.event.Rule)
	case r.process != nil:
		found = r.scene.FindingsOf(r.id.host, r.id.pid)
	case r.gpu != nil:
		found = r.scene.FindingsAbout(r.id.host, r.gpu.GPU)
	}
	for _, f := range found {
		values = append(values, texts(f.Rule)...)
	}
	return values
}

func pids(r *tabRow) []gpus.Value {
	pid := r.id.pid
	switch {
	case r.gpu != nil:
		return ofGPUs("pid")(r)
	case r.event != nil:
		pid = r.event.PID
	}
	if pid == 0 {
		return nil
	}
	return number(pid)
}

func commands(r *tabRow) []gpus.Value {
	switch {
	case r.finding != nil:
		return texts(cmp.Or(r.finding.Command, r.finding.PrivateCommand))
	case r.process != nil:
		return texts(r.process.CommandLine())
	}
	return ofGPUs("command")(r)
}

func containers(r *tabRow) []gpus.Value {
	if r.finding != nil {
		return texts((&snapshot.Process{Container: r.finding.Container, ContainerInfo: r.finding.ContainerInfo}).
			ContainerText())
	}
	return texts(r.process.ContainerText())
}

func memoryOf(r *tabRow) []gpus.Value {
	switch {
	case r.user != nil:
		return number(r.user.Memory)
	case r.process == nil:
		return ofGPUs("mem")(r)
	case r.process.memory == nil:
		return nil
	}
	return number(*r.process.memory)
}

func indicesOf(r *tabRow) (values []gpus.Value) {
	if r.finding == nil {
		return ofGPUs("gpu")(r)
	}
	for _, index := range r.finding.Devices {
		values = append(values, number(index)...)
	}
	return values
}

func guardOf(r *tabRow) []gpus.Value {
	if r.host.Guard.String() == "" {
		return nil
	}
	return texts(cmp.Or(string(r.host.Guard.Mode), "unknown"))
}
