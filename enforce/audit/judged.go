package audit

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/seed-3119e985/genv/enforce/order"
	"github.com/seed-3119e985/genv/snapshot"
	"github.com/seed-3119e985/genv/snapshot/text"
)

// The lines are few and short: each item of an order has some, and hosts can make names up.
const (
	maxExplained = 256 // items of an order
	maxProcesses = 4   // of a user on a device
	maxDevices   = 8   // of a process or an environment
	maxLine      = 320 // characters
	maxCommand   = 120 // characters of a command line
)

// MaxJudgedLines limits the lines of an item, and MaxJudgedBytes the bytes of each.
const (
	MaxJudgedLines = 16
	MaxJudgedBytes = 4 * maxLine
)

// Explain sets the judged lines of an order's items, from the host's snapshot.
func Explain(o *order.Order, host snapshot.Hostname, s *snapshot.Snapshot, at time.Time) {
	if s == nil {
		return
	}
	title := "snapshot of " + shown(string(host)) + ", " + at.UTC().Format("2006-01-02 15:04:05 UTC")
	for i := range o.Detach[:min(len(o.Detach), maxExplained)] {
		o.Detach[i].Judged = bounded(title, detachmentLines(s, &o.Detach[i]))
	}
	for i := range o.Terminate[:min(len(o.Terminate), maxExplained)] {
		o.Terminate[i].Judged = bounded(title, terminationLines(s, &o.Terminate[i].Process))
	}
}

func terminationLines(s *snapshot.Snapshot, p *snapshot.Process) []string {
	lines := []string{processLine(p)}
	for _, usage := range p.Usage[:min(len(p.Usage), maxDevices)] {
		lines = append(lines, deviceLine(s, usage.Index))
	}
	env := s.Environment(p.EID)
	if _, uid := env.Account(); uid != nil && p.UID != nil && *uid == *p.UID { // not of another user
		lines = append(lines, environmentLine(s, env))
	}
	return lines
}

func detachmentLines(s *snapshot.Snapshot, d *order.Detachment) []string {
	lines := []string{deviceLine(s, d.Device), environmentLine(s, &d.Environment)}
	more := 0
	for i := range s.Processes {
		p := &s.Processes[i]
		switch {
		case d.Environment.OwnerMismatch || p.Uses(d.Device) == nil || p.UID == nil || *p.UID != d.Environment.UID:
		case len(lines) >= 2+maxProcesses:
			more++
		default:
			lines = append(lines, processLine(p))
		}
	}
	if more > 0 {
		lines = append(lines, fmt.Sprintf("%d more processes of this user on the GPU", more))
	}
	return lines
}

func processLine(p *snapshot.Process) string {
	parts := []string{fmt.Sprintf("process %d", p.PID)}
	if p.Start != 0 {
		parts = append(parts, fmt.Sprintf("started %d ticks after boot", p.Start))
	}
	parts = append(parts, userText(p.Username, p.UID))
	if command := p.CommandOrName(); command != "" {
		parts = append(parts, "command "+text.Quoted(
			strings.Join(strings.Fields(text.Cut(command, snapshot.MaxCommand)), " "), maxCommand))
	}
	if container := p.ContainerText(); container != "" {
		parts = append(parts, container)
	}
	switch {
	case p.EnvUnknown:
		parts = append(parts, "its environment can't be read")
	case p.EID == "":
		parts = append(parts, "claims no environment")
	default:
		parts = append(parts, "claims environment "+shown(string(p.EID)))
	}
	for _, u := range p.Usage[:min(len(p.Usage), maxDevices)] {
		parts = append(parts, fmt.Sprintf("GPU %s: %s", u.Index, known(u.Memory)))
	}
	return strings.Join(parts, ", ")
}

func userText(name snapshot.Username, uid *snapshot.UID) string {
	switch {
	case uid == nil:
		return "user unknown"
	case name == "":
		return fmt.Sprintf("uid %d", *uid)
	}
	return fmt.Sprintf("user %s (uid %d)", shown(string(name)), *uid)
}

func deviceLine(s *snapshot.Snapshot, index snapshot.DeviceIndex) string {
	d := s.Device(index)
	if d == nil {
		return ""
	}
	line := fmt.Sprintf("GPU %s", d.Index)
	if d.Name != "" {
		line += " " + shown(d.Name)
	}
	if d.UUID != "" {
		line += " " + shown(string(d.UUID))
	}
	line += fmt.Sprintf(": %s of %s used", known(d.UsedMemory), known(d.Capacity()))
	if d.Failed {
		line += ", failed"
	}
	if d.Problem != "" {
		line += " (" + shown(d.Problem) + ")"
	}
	if d.Utilization != nil {
		line += fmt.Sprintf(", computing %d%%", *d.Utilization)
	}
	if d.Power != nil && d.PowerLimit != nil {
		line += fmt.Sprintf(", drawing %.0f of %.0f W", *d.Power, *d.PowerLimit)
	}
	return line
}

func environmentLine(s *snapshot.Snapshot, env *snapshot.Environment) string {
	parts := []string{fmt.Sprintf("environment %s of %s", shown(string(env.EID)), userText(env.Username, &env.UID))}
	if !env.Creation.IsZero() {
		parts = append(parts, "created "+env.Creation.ISO())
	}
	if env.Config.GPUMemory.Known() {
		parts = append(parts, "memory capacity "+env.Config.GPUMemory.String())
	}
	attached := snapshot.AttachedTo(s.Devices, env.EID)
	for _, index := range attached[:min(len(attached), maxDevices)] {
		since := s.Device(index).Attachment(env.EID).Time
		parts = append(parts, fmt.Sprintf("attached to GPU %s since %s", index, since.ISO()))
	}
	if len(attached) == 0 {
		parts = append(parts, "attached to no GPU")
	}
	return strings.Join(parts, ", ")
}

func shown(name string) string { return text.Shown(text.Cut(name, snapshot.MaxCommand)) }

func known(m snapshot.Memory) string {
	if !m.Known() {
		return "unknown memory"
	}
	return text.GiB(m.Bytes())
}

func bounded(title string, lines []string) []string {
	lines = slices.DeleteFunc(append([]string{title}, lines...), func(line string) bool { return line == "" })
	lines = lines[:min(len(lines), MaxJudgedLines)]
	for i := range lines {
		lines[i] = text.Shorten(text.OneLine(lines[i]), maxLine)
	}
	return lines
}
