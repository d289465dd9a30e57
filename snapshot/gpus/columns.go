package gpus

import (
	"cmp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/seed-3119e985/genv/snapshot"
	"github.com/seed-3119e985/genv/snapshot/text"
	"github.com/seed-3119e985/genv/snapshot/text/draw"
)

// Row is a GPU of a host.
type Row struct {
	Host snapshot.Hostname `json:"host"`
	*GPU
}

// Column is a property of GPUs for tables, CSV, the page, sorting and filters.
type Column struct {
	draw.ColumnLayout        // in tables of text, if it has a Name
	Last              bool   // there, since it may have any length
	CSV, Page         string // its name there; empty for none
	Sort              string // its name for --sort; empty for none
	Descending        bool   // --sort begins with the largest
	Filter            string // its name in filters; empty for none
	Unit              string // of numbers

	value func(*Row) Value
	all   func(*Row) []Value // if it has several values
	text  func(*Row, Times) string
	data  func(*Row, Times) string // in CSV, if not value or text
	order func(*Row) Value         // for sorting, if not value
}

// Value is a text or a number. The zero Value is unknown.
type Value struct {
	Text     string
	Number   float64
	IsNumber bool
}

// Times formats times in a list.
type Times func(time.Time) string

// Columns lists all columns in order. Add new ones at the end: scripts read CSV by position.
func Columns() []Column {
	return []Column{
		{
			ColumnLayout: draw.ColumnLayout{Name: "HOST", Width: 10, Least: 10},
			CSV:          "HOST", Page: "Host", Filter: "host",
			value: func(r *Row) Value { return Value{Text: string(r.Host)} },
		},
		{
			ColumnLayout: draw.ColumnLayout{Name: "GPU", Width: 3, Right: true}, CSV: "GPU", Page: "GPU", Filter: "gpu",
			value: func(r *Row) Value { return number(&r.Index) },
		},
		{CSV: "UUID", value: func(r *Row) Value { return Value{Text: string(r.UUID)} }},
		{
			ColumnLayout: draw.ColumnLayout{Name: "MODEL", Width: 8, Least: 8, Order: 7}, CSV: "MODEL", Sort: "model",
			Filter: "model", value: func(r *Row) Value { return Value{Text: r.Model} },
			text: func(r *Row, _ Times) string { return cmp.Or(ShortModel(r.Model), "?") },
		},
		{
			ColumnLayout: draw.ColumnLayout{Name: "STATE", Width: 8},
			CSV:          "STATE", Page: "State", Sort: "state", Filter: "state",
			value: func(r *Row) Value { return Value{Text: string(r.State)} },
			order: func(r *Row) Value { n := slices.Index(States(), r.State); return number(&n) },
		},
		{
			ColumnLayout: draw.ColumnLayout{Name: "MEM GIB", Width: 7, Order: 9, Right: true},
			CSV:          "MEMORY USED", Page: "Memory", Sort: "memory", Descending: true, Filter: "mem",
			value: func(r *Row) Value { return number(r.MemoryUsed) },
			text:  func(r *Row, _ Times) string { return text.UsedGiB(r.MemoryUsed, r.MemoryTotal) },
		},
		{CSV: "MEMORY TOTAL", value: func(r *Row) Value { return number(r.MemoryTotal) }},
		{
			ColumnLayout: draw.ColumnLayout{Name: "UTIL", Width: 4, Order: 6, Right: true},
			CSV:          "UTILIZATION", Page: "Use", Unit: "%", Sort: "utilization", Descending: true, Filter: "util",
			value: func(r *Row) Value { return number(r.Utilization) },
		},
		{
			ColumnLayout: draw.ColumnLayout{Name: "TEMP", Width: 4, Order: 3, Right: true},
			CSV:          "TEMPERATURE", Page: "Temp.", Unit: "°C", Sort: "temperature", Descending: true,
			value: func(r *Row) Value { return number(r.Temperature) },
		},
		{
			ColumnLayout: draw.ColumnLayout{Name: "POWER", Width: 5, Order: 2, Right: true},
			CSV:          "POWER", Page: "Power", Unit: "W",
			Sort: "power", Descending: true, value: func(r *Row) Value { return number(r.Power) },
		},
		{
			CSV: "USERS", Sort: "user", Filter: "user",
			value: func(r *Row) Value { return append(users(r), Value{})[0] },
			all:   users, data: shownUsers,
		},
		{
			ColumnLayout: draw.ColumnLayout{Name: "ATTACHED TO", Width: 11, Least: 11, Order: 5}, CSV: "ATTACHED TO",
			Page: "Attached to", text: func(r *Row, _ Times) string { return attachedTo(r.GPU) },
		},
		{
			ColumnLayout: draw.ColumnLayout{Name: "SINCE", Width: 5, Order: 4, Right: true},
			CSV:          "SINCE", Sort: "since",
			Descending: true, value: func(r *Row) Value { return age(r.Since()) }, text: since, data: since,
		},
		{
			ColumnLayout: draw.ColumnLayout{Name: "PROCESSES", Width: 10, Least: 14, Order: 8},
			Last:         true, CSV: "PROCESSES",
			Page: "Processes", text: func(r *Row, _ Times) string { return problemAndProcesses(r.GPU) },
			data:  func(r *Row, _ Times) string { return processesOf(r.GPU) },
			order: func(r *Row) Value { return Value{Number: float64(len(r.Processes)), IsNumber: true} },
		},
		{Filter: "pid", all: func(r *Row) []Value {
			return each(r.Processes, func(p *Process) Value { return number(&p.PID) })
		}},
		{Filter: "command", all: func(r *Row) []Value {
			return each(r.Processes, func(p *Process) Value { return Value{Text: p.CommandLine()} })
		}},
		{
			ColumnLayout: draw.ColumnLayout{Name: "DRIVER", Width: 6, Order: 1}, CSV: "DRIVER", Page: "Driver",
			value: func(r *Row) Value { return Value{Text: r.Driver} },
		},
	}
}

func number[N ~int | ~int32 | ~int64 | float64](n *N) Value {
	if n == nil {
		return Value{}
	}
	return Value{Number: float64(*n), IsNumber: true}
}

func each[T any](list []T, value func(*T) Value) (values []Value) {
	for i := range list {
		values = append(values, value(&list[i]))
	}
	return values
}

func users(r *Row) []Value {
	list := r.Users()
	return each(list, func(u *snapshot.Username) Value { return Value{Text: string(*u)} })
}

func age(t time.Time) Value {
	if t.IsZero() {
		return Value{}
	}
	return Value{Number: -float64(t.UnixMilli()), IsNumber: true}
}

// Values returns a row's known values in the column.
func (c *Column) Values(r *Row) []Value {
	if c.all != nil {
		return c.all(r)
	}
	if v := c.value(r); v != (Value{}) {
		return []Value{v}
	}
	return nil
}

// Text is for people, not escaped; "?" for an unknown number.
func (c *Column) Text(r *Row, times Times) string {
	if c.text != nil {
		return c.text(r, times)
	}
	return cmp.Or(c.value(r).measured(strings.TrimPrefix(c.Unit, "°")), "?")
}

// Measured is a number with its unit for the page, or a text; "–" if unknown.
func (c *Column) Measured(r *Row) string {
	if c.Unit == "" {
		return cmp.Or(c.value(r).Text, "–")
	}
	return cmp.Or(c.value(r).measured(" "+c.Unit), "–")
}

func (v Value) measured(unit string) string {
	if !v.IsNumber {
		return v.Text
	}
	return strconv.FormatFloat(v.Number, 'f', 0, 64) + unit
}

// Data is for programs that read CSV; empty if unknown.
func (c *Column) Data(r *Row, times Times) string {
	switch {
	case c.data != nil:
		return c.data(r, times)
	case c.value == nil:
		return c.text(r, times)
	}
	v := c.value(r)
	if v.IsNumber {
		return strconv.FormatFloat(v.Number, 'f', -1, 64)
	}
	return v.Text
}

// Sorts reports whether rows can be sorted by the column.
func (c *Column) Sorts() bool { return c.value != nil || c.order != nil }

// Compare orders texts from a to z and the smallest number first; unknown values come last, as in --sort.
func (c *Column) Compare(a, b *Row) int {
	key := c.order
	if key == nil {
		key = c.value
	}
	x, y := key(a), key(b)
	if unknown := (Value{}); x == unknown || y == unknown {
		switch {
		case x == y:
			return 0
		case (x == unknown) == c.Descending:
			return -1
		}
		return 1
	}
	return cmp.Or(cmp.Compare(x.Number, y.Number), cmp.Compare(x.Text, y.Text))
}

// attachedTo is as in "alice train, bob 4242".
func attachedTo(g *GPU) string {
	list := make([]string, len(g.Attached))
	for i := range g.Attached {
		a := &g.Attached[i]
		list[i] = nameOf(a.User) + " " + text.Shown(cmp.Or(a.Name, string(a.EID)))
		for _, instance := range a.Instances {
			list[i] += " on " + string(instance)
		}
	}
	return strings.Join(list, ", ")
}

func nameOf(user snapshot.Username) string {
	if user == "" {
		return "?"
	}
	return ShownUser(user)
}

func shownUsers(r *Row, _ Times) string {
	var list []string
	for _, user := range r.Users() {
		list = append(list, nameOf(user))
	}
	return strings.Join(list, ", ")
}

func since(r *Row, times Times) string {
	if at := r.Since(); !at.IsZero() {
		return times(at)
	}
	return ""
}

// processesOf is as in "alice 4242 60.1 GiB python train.py; bob 77 0.5 GiB sleep 60 (container web (cuda:12))".
func processesOf(g *GPU) string {
	list := make([]string, len(g.Processes))
	for i := range g.Processes {
		p := &g.Processes[i]
		list[i] = nameOf(p.User) + " " + strconv.Itoa(int(p.PID))
		if p.Memory != nil {
			list[i] += " " + text.GiB(*p.Memory)
		}
		if command := p.ShownCommand(); command != "" {
			list[i] += " " + command
		}
		if p.Type.Draws() {
			list[i] += " (" + string(p.Type) + ")"
		}
		for _, instance := range p.Instances {
			list[i] += " on " + string(instance)
		}
		if container := p.ContainerText(); container != "" {
			list[i] += " (" + container + ")"
		}
	}
	return strings.Join(list, "; ")
}

func problemAndProcesses(g *GPU) string {
	processes := processesOf(g)
	if g.Problem != "" && processes != "" {
		processes = "; " + processes
	}
	return text.Printable(string(g.Problem)) + processes
}

// ShownCommand omits the program's folder, and is quoted unless all its words are ordinary.
func (p *Process) ShownCommand() string {
	command := p.CommandLine()
	program, _, _ := strings.Cut(command, " ")
	command = strings.TrimPrefix(command, program[:strings.LastIndexByte(program, '/')+1])
	if text.IsMadeOf(command, "._:@/+- ") {
		return strings.TrimSpace(command)
	}
	return text.Quoted(command, snapshot.MaxCommand)
}
