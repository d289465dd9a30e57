package guard

import (
	"cmp"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/seed-3119e985/genv/cmd/genv/render"
	"github.com/seed-3119e985/genv/enforce/guard"
	"github.com/seed-3119e985/genv/snapshot/text"
	"github.com/seed-3119e985/genv/snapshot/watch"
)

func writeStatus(w io.Writer, d *StatusDocument) error {
	var b strings.Builder
	line := func(name, format string, args ...any) {
		fmt.Fprintf(&b, "%-10s%s\n", name, text.Printable(fmt.Sprintf(format, args...)))
	}
	switch {
	case d.Mode == guard.Off && d.Reason != "":
		line("guard", "off: %s", d.Reason)
	case d.Mode == guard.Off:
		line("guard", "off")
	default:
		line("guard", "%s, until %s (%s left) unless it is renewed", d.Mode, d.Until.Local().Format(time.TimeOnly),
			time.Duration(d.LeaseSeconds*float64(time.Second)).Round(time.Second))
		if d.Reason != "" {
			line("", "less than ordered: %s", d.Reason)
		}
	}
	if d.Order != nil {
		line("order", "%s, by %s at %s%s", d.Order.Mode, d.Order.By, d.Given.Local().Format(time.DateTime),
			exemptions(d))
	}
	switch {
	case d.Unpinned:
		line("kept by", "without pins: it ends at once with process %d", d.Keeper)
	case d.Keeper != 0:
		line("kept by", "process %d", d.Keeper)
	}
	if d.Veto {
		line("veto", "%s exists: no guard can be turned on", d.VetoFile)
	}
	writeKernel(line, d)
	writeEvents(line, d.Events)
	for _, problem := range d.Problems {
		line("problem", "%s", problem)
	}
	if _, err := io.WriteString(w, b.String()); err != nil {
		return err
	}
	return writeTables(w, d)
}

func exemptions(d *StatusDocument) (s string) {
	o := d.Order
	if o.Mode != guard.Off {
		s = fmt.Sprintf(", uids from %d", o.First())
	}
	if n := len(o.ExemptUsers) + len(o.ExemptUIDs); n > 0 {
		s += ", " + text.Plural(n, "exempt user")
	}
	if n := len(o.ExemptDevices) + len(o.ExemptUUIDs); n > 0 {
		s += ", " + text.Plural(n, "exempt GPU")
	}
	return s
}

// writeEvents says how a controller gets to know that a device was opened.
func writeEvents(line func(name, format string, args ...any), e *OpenEvents) {
	if e == nil {
		return
	}
	which, name := "opens of GPUs", "events"
	if e.Guard {
		line(name, "the guard reports opens of guarded GPUs, through any node")
		which, name = "opens of the nodes in /dev", ""
	}
	switch e.Opens {
	case watch.ByFanotify:
		line(name, "%s are watched by fanotify", which)
	case watch.ByInotify:
		line(name, "%s are watched by inotify, without the PIDs: %s", which, e.Why)
	default:
		line(name, "%s are not watched, only looked for at intervals: %s", which, e.Why)
	}
}

func writeKernel(line func(name, format string, args ...any), d *StatusDocument) {
	if d.Kernel == nil {
		line("kernel", "only root can ask what it can do, and see denials: sudo genv guard status")
		return
	}
	if d.Kernel.Possible {
		line("kernel", "it can guard; pins in %s", d.Pins)
	} else {
		line("kernel", "it can't guard: %s", d.Kernel.Why)
	}
	for _, a := range d.Kernel.Abilities {
		line("", "%-22s%-5s%s", a.Name, map[bool]string{true: "yes", false: "no"}[a.OK], a.Detail)
	}
	for _, p := range d.Kernel.Programs {
		what := "its consent is needed as well"
		if p.Exclusive {
			what = "it is in the way"
		}
		line("program", "%d %s at %s: %s", p.ID, text.Shown(p.Name), p.Cgroup, what)
	}
}

// writeTables prints devices, users and denials. Empty tables are left out.
func writeTables(w io.Writer, d *StatusDocument) error {
	for _, table := range []*render.Table{d.deviceTable(), d.userTable(), d.denialTable()} {
		if table.Len() == 0 {
			continue
		}
		if _, err := io.WriteString(w, "\n"); err != nil {
			return err
		}
		if err := table.Write(w); err != nil {
			return err
		}
	}
	return nil
}

var output = render.Output{Format: "tui"}

func (d *StatusDocument) deviceTable() *render.Table {
	table := output.Table(render.Col("DEVICE", 8), render.Col("UUID", 42), render.Col("NODE", 14),
		render.Col("GUARDED", 0))
	for _, each := range d.Devices {
		node, guarded := "?", "yes"
		if each.Minor != nil {
			node = fmt.Sprintf("/dev/nvidia%d", *each.Minor)
		}
		if !each.Guarded {
			guarded = "no: " + each.Why
		}
		table.Add(each.Index.String(), string(each.UUID), node, guarded)
	}
	return table
}

func (d *StatusDocument) userTable() *render.Table {
	table := output.Table(render.Col("USER", 20), render.Col("UID", 10), render.Col("MAY OPEN", 0))
	for _, each := range d.Users {
		may := text.JoinIndices(each.Devices)
		if each.Exempt {
			may = "all, exempt"
		}
		table.Add(output.Name(string(each.Name)), fmt.Sprint(each.UID), may)
	}
	if d.UsersLeftOut > 0 {
		table.Add(fmt.Sprintf("and %d more", d.UsersLeftOut), "", "")
	}
	return table
}

func (d *StatusDocument) denialTable() *render.Table {
	table := output.Table(render.Col("LAST", 10), render.Col("USER", 20), render.Col("DEVICE", 8),
		render.Col("PROGRAM", 18), render.Col("TIMES", 7), render.Col("WHAT", 0))
	for _, each := range d.Denials {
		what, device := "would be denied", fmt.Sprintf("node %d", each.Minor)
		if each.Denied {
			what = "denied"
		}
		if each.Index != nil {
			device = each.Index.String()
		}
		user := cmp.Or(string(each.User), fmt.Sprint(each.UID))
		table.Add(each.Last.Local().Format(time.TimeOnly), output.Name(user), device,
			output.Name(text.Printable(each.Name)), fmt.Sprint(each.Count), what)
	}
	return table
}
