package guard

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/urfave/cli/v2"

	"github.com/seed-3119e985/genv/cmd/genv/localhost"
	"github.com/seed-3119e985/genv/cmd/genv/render"
	"github.com/seed-3119e985/genv/enforce/guard"
	"github.com/seed-3119e985/genv/enforce/guard/kernel"
	"github.com/seed-3119e985/genv/snapshot"
	"github.com/seed-3119e985/genv/snapshot/hardware"
	"github.com/seed-3119e985/genv/snapshot/proc"
	"github.com/seed-3119e985/genv/snapshot/state/disk"
	"github.com/seed-3119e985/genv/snapshot/state/system"
	"github.com/seed-3119e985/genv/snapshot/text"
	"github.com/seed-3119e985/genv/snapshot/watch"
)

func (p *guardCommands) status(c *cli.Context, format string) error {
	document := p.document(c.Context)
	if format == "json" {
		return render.WriteJSON(p.Out, document)
	}
	return writeStatus(p.Out, &document)
}

func (d *StatusDocument) askEvents(devDir string, said *guard.Status) {
	method, err := watch.MethodOf(devDir)
	// Without its Keeper the guard may be on, but its reports are not read.
	d.Events = &OpenEvents{Guard: d.Mode != guard.Off && said.Keeper != 0 && !keeperEnded(said), Opens: method}
	if err != nil {
		d.Events.Why = err.Error()
	}
}

func (p *guardCommands) document(ctx context.Context) StatusDocument {
	now := p.Now()
	pins := pinsOf(p.Getenv)
	d := StatusDocument{
		Schema: "genv.guard.status/1", Time: now.UTC(), Root: os.Geteuid() == 0, VetoFile: VetoFile(p.Getenv),
		Pins: cmp.Or(pins.Dir, kernel.DefaultDir), Devices: []guard.Device{},
		Users: []guard.AllowedUser{}, Problems: []string{},
	}
	d.Veto = p.vetoExists()
	said, err := guard.ReadStatus(disk.RunDir(p.Getenv))
	switch {
	case errors.Is(err, guard.ErrNoStatus):
		d.Reason = "it was never on since the machine was started"
	case err != nil:
		d.Problems = append(d.Problems, err.Error())
	default:
		d.takeOver(&said, now)
	}
	ctx, cancel := context.WithTimeout(ctx, 3*time.Second) // to look up names of users
	defer cancel()
	name := names(ctx)
	for _, u := range said.Users {
		if d.Mode != guard.Off {
			u.Name = name(u.UID)
			d.Users = append(d.Users, u)
		}
	}
	if d.Root {
		d.askKernel(pins)
		d.askEvents(localhost.DevDir(p.Getenv, 0), &said)
		d.listDenials(disk.RunDir(p.Getenv), now, name)
	}
	if len(d.Devices) == 0 {
		d.listDevices(localhost.Hardware(p.Getenv))
	}
	return d
}

func (d *StatusDocument) takeOver(said *guard.Status, now time.Time) {
	d.Mode, d.Reason, d.Order, d.Given = said.Now(now), said.Reason, said.Order, said.Given
	d.Problems = append(d.Problems, said.Problems...)
	if d.Mode == guard.Off {
		if said.Mode != guard.Off {
			d.Reason = "it ended at " + said.Until.Local().Format(time.DateTime) + ", and no process has renewed it"
		}
		return
	}
	if said.Unpinned && keeperEnded(said) {
		d.Mode, d.Reason = guard.Off, fmt.Sprintf("process %d, which kept it without pins, has ended", said.Keeper)
		return
	}
	d.Until, d.LeaseSeconds, d.Unpinned = said.Until, said.Until.Sub(now).Seconds(), said.Unpinned
	d.Keeper, d.Devices, d.UsersLeftOut = said.Keeper, said.Devices, said.UsersLeftOut
}

// keeperEnded reports whether the guard's process has certainly ended, and with it an unpinned guard.
func keeperEnded(said *guard.Status) bool {
	alive, err := proc.FS{}.Alive(said.Keeper, said.KeeperStart)
	return err == nil && !alive
}

func (d *StatusDocument) askKernel(at pins) {
	if at.err != nil {
		d.Kernel = &kernel.Support{Why: at.err.Error(), Abilities: []kernel.Ability{}, Programs: []kernel.Program{}}
		return
	}
	d.Kernel = new(kernel.Probe(at.Location))
	if d.Unpinned {
		return // only its process can reach the guard
	}
	now, err := kernel.Inspect(at.Dir)
	switch {
	case errors.Is(err, guard.ErrRemoved) && d.Mode == guard.Off:
	case errors.Is(err, guard.ErrRemoved):
		d.Problems = append(d.Problems, "guard.json has the guard on, but it isn't in the kernel: all opens are allowed")
		d.Mode, d.LeaseSeconds = guard.Off, 0
	case err != nil:
		d.Problems = append(d.Problems, "the guard in the kernel can't be read: "+err.Error())
	case now.Lease > 0 && now.Mode != guard.Off:
		d.Mode, d.LeaseSeconds, d.Until = now.Mode, now.Lease.Seconds(), d.Time.Add(now.Lease)
	default:
		d.Mode, d.LeaseSeconds = guard.Off, 0
	}
}

func (d *StatusDocument) listDenials(dir string, now time.Time, name func(snapshot.UID) snapshot.Username) {
	list, err := guard.ReadDenials(dir)
	if err != nil {
		d.Problems = append(d.Problems, err.Error())
		return
	}
	d.Denials = slices.DeleteFunc(list.Denials, func(each guard.Denial) bool { return !each.RecentAt(now) })
	for i := range d.Denials {
		d.Denials[i].User = name(d.Denials[i].UID)
	}
}

func (d *StatusDocument) listDevices(source hardware.Catalog) {
	devices, err := source.Known()
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		d.Problems = append(d.Problems, err.Error())
	}
	for _, each := range devices {
		d.Devices = append(d.Devices, guard.Device{
			Index: each.Index, UUID: each.UUID, Minor: each.Minor, Why: "the guard is off",
		})
	}
}

func names(ctx context.Context) func(snapshot.UID) snapshot.Username {
	known := map[snapshot.UID]snapshot.Username{}
	return func(uid snapshot.UID) snapshot.Username {
		name, asked := known[uid]
		if !asked && ctx.Err() == nil {
			name = system.Username(ctx, uid)
			known[uid] = name
		}
		return name
	}
}

// StatusDocument is the JSON of `genv guard status`.
type StatusDocument struct {
	Schema       string              `json:"schema"`
	Time         time.Time           `json:"time"`
	Root         bool                `json:"root"`
	Mode         guard.Mode          `json:"mode"`             // what the guard does now
	Until        time.Time           `json:"until,omitzero"`   // then everything opens, unless it is renewed
	LeaseSeconds float64             `json:"lease_seconds"`    // left
	Reason       string              `json:"reason,omitempty"` // why it is off, or does less than was ordered
	Order        *guard.Order        `json:"order,omitempty"`  // the last one
	Given        time.Time           `json:"given,omitzero"`   // last
	Veto         bool                `json:"veto"`             // a file keeps the guard off
	VetoFile     string              `json:"veto_file"`
	Pins         string              `json:"pins"`               // their folder
	Keeper       snapshot.PID        `json:"keeper,omitempty"`   // the process that has it
	Unpinned     bool                `json:"unpinned,omitempty"` // it ends with its keeper
	Kernel       *kernel.Support     `json:"kernel,omitempty"`   // for root
	Devices      []guard.Device      `json:"devices"`
	Users        []guard.AllowedUser `json:"users"`                    // who may open guarded GPUs
	UsersLeftOut int                 `json:"users_left_out,omitempty"` // beyond 500
	// Denials are of the last hour; null without root.
	Denials  []guard.Denial `json:"denials"`
	Problems []string       `json:"problems"`
	// Events is how opens are noticed; missing without root.
	Events *OpenEvents `json:"events,omitempty"`
}

// OpenEvents is how opens of devices are watched.
type OpenEvents struct {
	// Guard says that the guard reports opens through any node.
	Guard bool         `json:"guard"`
	Opens watch.Method `json:"opens"`         // of nodes in /dev
	Why   string       `json:"why,omitempty"` // why it isn't fanotify
}

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
	table := output.Table("GPU:8", "UUID:42", "NODE:14", "GUARDED")
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
	table := output.Table("USER:20", "UID:10", "MAY OPEN")
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
	table := output.Table("LAST:10", "USER:20", "GPU:8", "PROGRAM:18", "TIMES:7", "WHAT")
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
