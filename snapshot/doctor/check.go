// Package doctor is the model of `genv doctor`: checks, findings, and next steps. A judgement is a table of facts,
// whose first row that holds is the result; causes.txt has the status and next step of each cause. Machine collects
// facts of this machine, remote/doctor what a controller sees of a host.
//
//	check := doctor.CheckDriver(doctor.DriverCall{Took: took, Modes: modes, Err: err})
//	if check.Status == doctor.Failed {
//		fmt.Println(check.Detail, check.NextStep)
//	}
//
// What could not be found out is Skipped, never OK. A host's own words are only in Detail: the next step follows from
// the Cause, so that a host can't tell an administrator what to run.
package doctor

import (
	"cmp"
	_ "embed"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/seed-3119e985/genv/snapshot/text"
)

// CheckStatus is the result of a check.
type CheckStatus string

// Results, from good to bad.
const (
	OK      CheckStatus = "ok"
	Skipped CheckStatus = "skipped" // it could not be checked
	Warning CheckStatus = "warning"
	Failed  CheckStatus = "failed"
)

// Name names a check.
type Name string

// The checks in display order. A controller makes the first five, Clock and the last one.
const (
	NameResolution Name = "name"     // the host's name has an address
	TCP            Name = "tcp"      // an SSH server answers
	HostKey        Name = "host-key" // the server's key is the known one
	Login          Name = "login"    // the server accepts our key, and runs a command
	Sudo           Name = "sudo"     // what sudo allows
	Genv           Name = "genv"     // genv's path, version, protocol
	DriverState    Name = "driver"   // the driver, and nvidia-smi
	StateFolder    Name = "state"    // the state folder and its files
	Clock          Name = "clock"    // the difference to the controller's
	PIDNamespace   Name = "pid-ns"   // whether PIDs are those of the state files
	Guard          Name = "guard"    // whether the kernel can guard devices, and obeys
	Services       Name = "services" // genv's systemd units
	Disk           Name = "disk"     // space for the record and the state

	Controller Name = "controller" // which controller acts on the host
)

var names = []Name{
	NameResolution, TCP, HostKey, Login, Sudo,
	Genv, DriverState, StateFolder, Clock, PIDNamespace, Guard, Services, Disk, Controller,
}

// Names lists the checks of a controller in order.
func Names() []Name { return names }

// HostNames lists the checks that a host makes of itself in order.
func HostNames() []Name { return names[5:13] }

// Cause is why a check isn't OK. The texts appear in JSON.
type Cause string

// causes has a line for each next step: its causes, their status, and the step unless it depends on the host.
//
//go:embed causes.txt
var causes string

func meaningOf(c Cause) (status CheckStatus, step string) {
	for line := range strings.Lines(causes) {
		words, rest, _ := strings.Cut(strings.TrimSpace(line), " ")
		if slices.Contains(strings.Split(words, ","), string(c)) {
			word, step, _ := strings.Cut(rest, " ")
			return CheckStatus(word), step
		}
	}
	return Failed, ""
}

// Check is the result of one check.
type Check struct {
	Name   Name        `json:"name"`
	Status CheckStatus `json:"status"`
	// Cause is the problem's name, the same wherever it occurs.
	Cause Cause `json:"cause,omitempty"`
	// Detail is what was found, in one line.
	Detail string `json:"detail"`
	// NextStep is what to do about it; missing if there is nothing to do.
	NextStep string `json:"next_step,omitempty"`
}

// Unsure is the cause of a check that could not be made.
const Unsure Cause = "unsure"

// If is a row of a table for First: an empty Check unless it holds. The cause decides the status and the next step;
// without a cause all is in order.
func If(holds bool, cause Cause, format string, args ...any) Check {
	if !holds {
		return Check{}
	}
	c := Check{Status: OK, Cause: cause, Detail: OneLine(fmt.Sprintf(format, args...))}
	switch cause {
	case "":
	case Unsure:
		c.Status, c.Cause = Skipped, ""
	default:
		c.Status, c.NextStep = meaningOf(cause)
	}
	return c
}

// Next replaces the next step of a finding.
func (c Check) Next(step string) Check {
	if c.Status != "" {
		c.NextStep = step
	}
	return c
}

// First returns the first row that holds.
func First(name Name, table ...Check) (c Check) {
	if i := slices.IndexFunc(table, func(c Check) bool { return c.Status != "" }); i >= 0 {
		c = table[i]
	}
	c.Name = name
	return c
}

// Judge is First for a table of problems; if no row holds, all is in order.
func Judge(name Name, ok string, table ...Check) Check {
	return First(name, append(table, If(true, "", "%s", ok))...)
}

// Good is a check without a problem.
func Good(name Name, format string, args ...any) Check {
	return First(name, If(true, "", format, args...))
}

// Unknown is a check that could not be made, with the reason.
func Unknown(name Name, format string, args ...any) Check {
	return First(name, If(true, Unsure, format, args...))
}

// Problem is a check with a problem; the cause decides its status and next step.
func Problem(name Name, cause Cause, format string, args ...any) Check {
	return First(name, If(true, cause, format, args...))
}

// Worse says whether a status is worse than another.
func (s CheckStatus) Worse(than CheckStatus) bool { return s.rank() < than.rank() }

func (s CheckStatus) rank() int { return slices.Index([]CheckStatus{Failed, Warning, Skipped, OK}, s) }

// Overall is the status of the worst check. A skipped check doesn't count: the failure that prevented it does.
func Overall(checks []Check) CheckStatus {
	made := slices.DeleteFunc(slices.Clone(checks), func(c Check) bool { return c.Status == Skipped })
	return cmp.Or(Worst(made...).Status, OK)
}

// Worst returns the worst of several results, the first of equals.
func Worst(checks ...Check) (found Check) {
	for _, c := range checks {
		if found.Status == "" || c.Status != "" && c.Status.Worse(found.Status) {
			found = c
		}
	}
	return found
}

// together is Worst or, if all are in order, all their details.
func together(separator string, checks []Check) Check {
	found, details := Worst(checks...), make([]string, len(checks))
	for i, c := range checks {
		details[i] = c.Detail
	}
	if found.Status == OK {
		found.Detail = strings.Join(details, separator)
	}
	return found
}

// Schema names the document of `genv doctor --format json`; docs/json.md describes it.
const Schema = "genv.doctor/1"

// HostDocument is a host's report about itself.
type HostDocument struct {
	Schema string      `json:"schema"`
	Host   string      `json:"host"`
	Time   time.Time   `json:"time"`
	Root   bool        `json:"root"` // whether it ran as root
	Genv   GenvProgram `json:"genv"`
	System System      `json:"system"`
	Status CheckStatus `json:"status"` // of the worst check
	Checks []Check     `json:"checks"`
	// Guard is the kernel guard; missing if unknown.
	Guard *GuardState `json:"guard,omitempty"`
}

// GenvProgram is a genv.
type GenvProgram struct {
	Path    string `json:"path,omitempty"`
	Version string `json:"version,omitempty"`
	// Protocol is missing for genv 1.4.3.
	Protocol int `json:"protocol,omitempty"`
}

// System is the software of a host; empty where unknown.
type System struct {
	OS     string `json:"os,omitempty"`
	Kernel string `json:"kernel,omitempty"`
	Arch   string `json:"arch,omitempty"`
	Driver string `json:"driver,omitempty"`
}

// MaxDocument limits a document, in bytes.
const MaxDocument = 256 << 10

// ErrInvalid is wrapped by errors about an invalid document.
var ErrInvalid = errors.New("not a document of genv doctor")

// Decode reads the document of a host, which may be hostile: it drops a controller's checks, takes next steps from
// causes, and bounds texts.
func Decode(data []byte) (*HostDocument, error) {
	if len(data) > MaxDocument {
		return nil, fmt.Errorf("%w: it has more than %d bytes", ErrInvalid, MaxDocument)
	}
	var d HostDocument
	if err := json.Unmarshal(data, &d); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrInvalid, err)
	}
	if d.Schema != Schema {
		return nil, fmt.Errorf("%w: its schema is %q", ErrInvalid, text.Cut(d.Schema, 64))
	}
	for _, word := range []*string{
		&d.Host, &d.Genv.Path, &d.Genv.Version, &d.System.OS, &d.System.Kernel,
		&d.System.Arch, &d.System.Driver,
	} {
		*word = text.OneLine(text.Cut(*word, maxWord))
	}
	given := d.Checks
	d.Checks = nil
	for _, name := range HostNames() {
		c := Unknown(name, "the genv on this host doesn't check it")
		if at := slices.IndexFunc(given, func(c Check) bool { return c.Name == name }); at >= 0 {
			c = given[at].bounded()
		}
		if c.Status.rank() < 0 {
			return nil, fmt.Errorf("%w: the status of %s is %q", ErrInvalid, name, text.Cut(string(c.Status), 32))
		}
		d.Checks = append(d.Checks, c)
	}
	d.Status, d.Guard = Overall(d.Checks), d.Guard.known()
	return &d, nil
}

func (c Check) bounded() Check {
	c.Cause, c.Detail = Cause(text.OneLine(text.Cut(string(c.Cause), 64))), OneLine(c.Detail)
	status, step := meaningOf(c.Cause)
	c.NextStep = step
	if good := !c.Status.Worse(Skipped); good && status != c.Status { // or it is a proposal
		c.Cause, c.NextStep = "", ""
	} else if !good && step == "" {
		c.NextStep = "run `genv doctor` on the host: its genv is newer"
	}
	return c
}

const maxWord = 256 // of a version or a path, in bytes
