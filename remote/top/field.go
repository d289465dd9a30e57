package top

import (
	"cmp"
	"slices"
	"sync"

	"github.com/seed-3119e985/genv/snapshot"
	"github.com/seed-3119e985/genv/snapshot/gpus"
)

// field is what rows of some tabs can be filtered by.
type field struct {
	name   string
	kind   fieldKind
	tabs   []tabID
	values func(*scene, *row) []gpus.Value
}

type fieldKind int

const (
	textField fieldKind = iota
	numberField
	memoryField
)

// fields are all of them. Those of GPUs are columns of gpus.
var fields = sync.OnceValue(func() []field {
	onGPUs := []tabID{tabHosts, tabGPUs, tabProcesses}
	onStates := []tabID{tabHosts, tabGPUs, tabFindings, tabProcesses, tabHistory}
	return []field{
		{
			"host", textField, append([]tabID{tabFailed}, onStates...),
			func(_ *scene, r *row) []gpus.Value { return texts(r.id.host) },
		},
		{
			"user", textField, append([]tabID{tabUsers}, onStates...),
			func(_ *scene, r *row) []gpus.Value { return texts(usersOf(r)...) },
		},
		{"state", textField, onStates, (*scene).statesOf},
		{"rule", textField, onStates, (*scene).rulesOf},
		{"label", textField, []tabID{tabHosts, tabGPUs, tabFindings, tabProcesses, tabFailed}, labels},
		{"model", textField, onGPUs, ofGPUs("model")},
		{"util", numberField, onGPUs, ofGPUs("util")},
		{"mem", memoryField, []tabID{tabHosts, tabGPUs, tabUsers, tabProcesses}, memoryOf},
		{"gpu", numberField, []tabID{tabGPUs, tabFindings, tabProcesses}, indicesOf},
		{"pid", numberField, []tabID{tabGPUs, tabFindings, tabProcesses, tabHistory}, pids},
		{"command", textField, []tabID{tabGPUs, tabFindings, tabProcesses}, commands},
		{"container", textField, []tabID{tabFindings, tabProcesses}, containers},
		{"free", numberField, []tabID{tabHosts}, func(_ *scene, r *row) []gpus.Value { return number(free(r.host)) }},
		{"guard", textField, []tabID{tabHosts}, guardOf},
		{"devices", numberField, []tabID{tabUsers}, func(_ *scene, r *row) []gpus.Value { return number(r.user.Attached) }},
		{"idle", numberField, []tabID{tabUsers}, func(_ *scene, r *row) []gpus.Value { return number(r.user.Idle) }},
		{"event", textField, []tabID{tabHistory}, func(_ *scene, r *row) []gpus.Value { return texts(r.event.Kind) }},
		{"class", textField, []tabID{tabFailed}, func(_ *scene, r *row) []gpus.Value { return texts(r.failure.Class) }},
	}
})

func fieldNames() (names []string) {
	for _, f := range fields() {
		names = append(names, f.name)
	}
	slices.Sort(names)
	return names
}

func (s *scene) keep(f Filter, rows []row) []row {
	if len(f.terms) == 0 {
		return rows
	}
	return slices.DeleteFunc(rows, func(r row) bool { return !f.matches(s, &r) })
}

// ignored are the fields of a filter that the rows of a tab don't have.
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

func ofGPUs(name string) func(*scene, *row) []gpus.Value {
	columns := gpus.Columns()
	c := &columns[slices.IndexFunc(columns, func(c gpus.Column) bool { return c.Filter == name })]
	return func(_ *scene, r *row) (values []gpus.Value) {
		if r.gpu != nil {
			return c.Values(r.gpu)
		}
		for _, g := range gpusOf(r) {
			values = append(values, c.Values(&gpus.Row{Host: r.id.host, GPU: g})...)
		}
		return values
	}
}

// allTexts are the texts of a row, and what its tab shows.
func (s *scene) allTexts(r *row) (values []gpus.Value) {
	for _, f := range fields() {
		if f.kind == textField && slices.Contains(f.tabs, r.id.tab) {
			values = append(values, f.values(s, r)...)
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

func labels(_ *scene, r *row) (values []gpus.Value) {
	if r.host == nil {
		return nil
	}
	for key, label := range r.host.Labels {
		values = append(values, gpus.Value{Text: key + "=" + label})
	}
	return values
}

// statesOf are the states of a row's GPUs, "finding" and "failed"; for a finding or an event what is done about it.
func (s *scene) statesOf(r *row) (values []gpus.Value) {
	switch {
	case r.finding != nil:
		return texts(string(r.finding.Decision), "finding")
	case r.event != nil:
		return texts(string(r.event.Decision), string(r.event.Status))
	}
	for _, g := range gpusOf(r) {
		values = append(values, texts(g.State)...)
		if _, exempt := s.Exempt(r.id.host, g); exempt {
			values = append(values, texts("exempt")...)
		}
	}
	if len(s.rulesOf(r)) > 0 {
		values = append(values, texts("finding")...)
	}
	if failureOf(r.host) != nil {
		values = append(values, texts("failed")...)
	}
	return values
}

func (s *scene) rulesOf(r *row) (values []gpus.Value) {
	found := s.FindingsOn(r.id.host)
	switch {
	case r.finding != nil:
		return texts(r.finding.Rule)
	case r.event != nil:
		return texts(r.event.Rule)
	case r.process != nil:
		f := findingOf(s, r)
		if f == nil {
			return nil
		}
		return texts(f.Rule)
	case r.gpu != nil:
		found = s.FindingsAbout(r.id.host, r.gpu.GPU)
	}
	for _, f := range found {
		values = append(values, texts(f.Rule)...)
	}
	return values
}

func pids(s *scene, r *row) []gpus.Value {
	pid := r.id.pid
	switch {
	case r.gpu != nil:
		return ofGPUs("pid")(s, r)
	case r.event != nil:
		pid = r.event.PID
	}
	if pid == 0 {
		return nil
	}
	return number(pid)
}

func commands(s *scene, r *row) []gpus.Value {
	switch {
	case r.finding != nil:
		return texts(cmp.Or(r.finding.Command, r.finding.PrivateCommand))
	case r.process != nil:
		return texts(r.process.CommandLine())
	}
	return ofGPUs("command")(s, r)
}

func containers(_ *scene, r *row) []gpus.Value {
	if r.finding != nil {
		return texts((&snapshot.Process{Container: r.finding.Container, ContainerInfo: r.finding.ContainerInfo}).
			ContainerText())
	}
	return texts(r.process.ContainerText())
}

func memoryOf(s *scene, r *row) []gpus.Value {
	switch {
	case r.user != nil:
		return number(r.user.Memory)
	case r.process == nil:
		return ofGPUs("mem")(s, r)
	case r.process.memory == nil:
		return nil
	}
	return number(*r.process.memory)
}

func indicesOf(s *scene, r *row) (values []gpus.Value) {
	if r.finding == nil {
		return ofGPUs("gpu")(s, r)
	}
	for _, index := range r.finding.Devices {
		values = append(values, number(index)...)
	}
	return values
}

// guardOf is what a row of the hosts has to say about a guard.
func guardOf(_ *scene, r *row) []gpus.Value {
	if r.host.Guard.String() == "" {
		return nil
	}
	return texts(cmp.Or(string(r.host.Guard.Mode), "unknown"))
}
