package top

import (
	"cmp"
	"slices"

	"github.com/seed-3119e985/genv/remote/live"
	"github.com/seed-3119e985/genv/snapshot"
	"github.com/seed-3119e985/genv/snapshot/gpus"
)

// keep returns the rows that meet a filter.
func (s *scene) keep(f Filter, rows []row) []row {
	if len(f.Fields()) == 0 {
		return rows
	}
	return slices.DeleteFunc(rows, func(r row) bool { return !s.meets(f, &r) })
}

func (s *scene) meets(f Filter, r *row) bool {
	return f.Matches(func(field string) ([]filterValue, bool) {
		if !hasField(r.id.tab, field) {
			return nil, false
		}
		return s.values(r, field), true
	})
}

func hasField(tab tabID, name string) bool { return name == "" || slices.Contains(fieldsOf(tab), name) }

// ignored are the fields of a filter that the rows of a tab don't have.
func ignored(f Filter, tab tabID) []string {
	return slices.DeleteFunc(f.Fields(), func(name string) bool { return hasField(tab, name) })
}

func texts[T ~string](list ...T) (values []filterValue) {
	for _, s := range list {
		if s != "" {
			values = append(values, filterValue{Text: string(s)})
		}
	}
	return values
}

func number[T ~int | ~int32 | ~int64](n T) []filterValue {
	return []filterValue{{Number: float64(n), IsNumber: true}}
}

// fieldsOf are the fields that the rows of a tab have.
func fieldsOf(tab tabID) []string {
	switch tab {
	case tabHosts:
		return []string{"host", "model", "user", "state", "rule", "label", "util", "free", "mem", "guard"}
	case tabGPUs:
		return []string{"host", "model", "user", "state", "rule", "label", "gpu", "util", "mem", "pid", "command"}
	case tabUsers:
		return []string{"user", "devices", "idle", "mem"}
	case tabFindings:
		return []string{"host", "user", "state", "rule", "pid", "gpu", "command", "container", "label"}
	case tabProcesses:
		return []string{"host", "user", "model", "state", "rule", "pid", "gpu", "mem", "util", "command", "container", "label"}
	case tabHistory:
		return []string{"host", "user", "state", "rule", "pid", "event"}
	}
	return []string{"host", "class", "label"}
}

// values are what a row has in a field of its tab; without a name, in all fields with text.
func (s *scene) values(r *row, field string) []filterValue {
	if field == "" {
		return s.allTexts(r)
	}
	switch field {
	case "host":
		return texts(r.id.host)
	case "user":
		return texts(usersOf(r)...)
	case "label":
		return labels(r.host)
	case "state":
		return s.statesOf(r)
	case "rule":
		return s.rulesOf(r)
	case "pid":
		return pids(r)
	case "command", "container":
		return s.commands(r, field)
	case "class":
		return texts(r.failure.Class)
	case "event":
		return texts(r.event.Kind)
	case "guard":
		return guardOf(r)
	}
	return numbers(r, field)
}

// allTexts are the texts of a row, and what its tab shows.
func (s *scene) allTexts(r *row) (values []filterValue) {
	for _, name := range fieldsOf(r.id.tab) {
		if isTextField(name) {
			values = append(values, s.values(r, name)...)
		}
	}
	switch {
	case r.finding != nil:
		values = append(values, filterValue{Text: r.finding.Line})
	case r.event != nil:
		values = append(values, filterValue{Text: r.event.Text})
	case r.failure != nil:
		values = append(values, filterValue{Text: r.failure.Error})
	}
	return values
}

func labels(h *live.Host) (values []filterValue) {
	if h == nil {
		return nil
	}
	for key, label := range h.Labels {
		values = append(values, filterValue{Text: key + "=" + label})
	}
	return values
}

// statesOf are the states of a row's GPUs, "finding" and "failed"; for a finding or an
// event what is done about it.
func (s *scene) statesOf(r *row) (values []filterValue) {
	switch {
	case r.finding != nil:
		return texts(string(r.finding.Decision), "finding")
	case r.event != nil:
		return texts(string(r.event.Decision), string(r.event.Status))
	}
	for _, g := range gpusOf(r) {
		values = append(values, filterValue{Text: string(g.State)})
	}
	if len(s.rulesOf(r)) > 0 {
		values = append(values, filterValue{Text: "finding"})
	}
	if failureOf(r.host) != nil {
		values = append(values, filterValue{Text: "failed"})
	}
	for _, g := range gpusOf(r) {
		if s.fleet.Exempt(r.id.host, g) != nil {
			values = append(values, filterValue{Text: "exempt"})
		}
	}
	return values
}

func (s *scene) rulesOf(r *row) (values []filterValue) {
	switch {
	case r.finding != nil:
		return texts(r.finding.Rule)
	case r.event != nil:
		return texts(r.event.Rule)
	case r.process != nil:
		if f := findingOf(s, r); f != nil {
			return texts(f.Rule)
		}
		return nil
	}
	found := s.findings[r.id.host]
	if r.gpu != nil {
		found = s.of(r.id.host, r.gpu)
	}
	for _, f := range found {
		values = append(values, filterValue{Text: string(f.Rule)})
	}
	return values
}

func pids(r *row) (values []filterValue) {
	if r.gpu == nil {
		return pid(r)
	}
	for i := range r.gpu.Processes {
		values = append(values, number(r.gpu.Processes[i].PID)...)
	}
	return values
}

func pid(r *row) []filterValue {
	n := r.id.pid
	if r.event != nil {
		n = r.event.PID
	}
	if n == 0 {
		return nil
	}
	return number(n)
}

func (s *scene) commands(r *row, field string) (values []filterValue) {
	of := func(command, container string) {
		if field == "container" {
			command = container
		}
		values = append(values, texts(command)...)
	}
	switch {
	case r.finding != nil:
		of(cmp.Or(r.finding.Command, r.finding.PrivateCommand), (&snapshot.Process{Container: r.finding.Container, ContainerInfo: r.finding.ContainerInfo}).ContainerText())
	case r.process != nil:
		of(r.process.CommandLine(), r.process.ContainerText())
	case r.gpu != nil:
		for i := range r.gpu.Processes {
			of(r.gpu.Processes[i].CommandLine(), r.gpu.Processes[i].ContainerText())
		}
	}
	return values
}

// numbers are the fields that depend on GPUs, and the counts of users.
func numbers(r *row, field string) (values []filterValue) {
	switch {
	case field == "devices":
		return number(r.user.Attached)
	case field == "idle":
		return number(r.user.Idle)
	case field == "free":
		return number(free(r.host))
	case field == "mem" && r.user != nil:
		return number(r.user.Memory)
	case field == "mem" && r.process != nil:
		return optional(r.process.memory)
	case field == "gpu" && r.finding != nil:
		for _, index := range r.finding.Devices {
			values = append(values, number(index)...)
		}
		return values
	}
	for _, g := range gpusOf(r) {
		values = append(values, gpuValue(g, field)...)
	}
	return values
}

func gpuValue(g *gpus.GPU, field string) []filterValue {
	switch field {
	case "model":
		return texts(g.Model)
	case "gpu":
		return number(g.Index)
	case "util":
		return optional(g.Utilization)
	case "mem":
		return optional(g.MemoryUsed)
	}
	return nil
}

func optional[T ~int | ~int64](n *T) []filterValue {
	if n == nil {
		return nil
	}
	return number(*n)
}
