package doctor

import (
	"fmt"
	"slices"
	"strings"
)

// Status is the result of a check.
type Status string

// The results, from good to bad.
const (
	OK      Status = "ok"
	Skipped Status = "skipped" // it could not be found out
	Warning Status = "warning"
	Failed  Status = "failed"
)

// Name is what a check is about.
type Name string

// The checks, in the order in which they are shown. The first five, Clock and the last one are made
// by a controller.
const (
	NameResolution Name = "name"     // the host's name has an address
	TCP            Name = "tcp"      // an SSH server answers there
	HostKey        Name = "host-key" // its key is the known one
	Login          Name = "login"    // it accepts a key of ours, and runs a command
	Sudo           Name = "sudo"     // what sudo allows the login
	Genv           Name = "genv"     // the genv there: path, version, protocol
	DriverState    Name = "driver"   // the driver, and nvidia-smi
	StateFolder    Name = "state"    // the state folder and the files in it
	Clock          Name = "clock"    // its difference to the controller's
	PIDNamespace   Name = "pid-ns"   // whether PIDs mean the same as in the state files
	Guard          Name = "guard"    // whether the kernel could guard devices
	Services       Name = "services" // genv's systemd units
	Disk           Name = "disk"     // space for the record and the state

	Controller Name = "controller" // which controller acts there
)

// Names lists the checks of a controller, in their order.
func Names() []Name {
	return append(append([]Name{NameResolution, TCP, HostKey, Login, Sudo}, HostNames()...), Controller)
}

// HostNames lists the checks that a host makes of itself, in their order.
func HostNames() []Name {
	return []Name{Genv, DriverState, StateFolder, Clock, PIDNamespace, Guard, Services, Disk}
}

// Check is the result of one check.
type Check struct {
	Name   Name   `json:"name"`
	Status Status `json:"status"`
	// Cause is a word for why it isn't OK: the same for all hosts with the same problem.
	Cause Cause `json:"cause,omitempty"`
	// Detail is what was found, in one line. It may contain the host's own words.
	Detail string `json:"detail"`
	// NextStep is what to do about it; empty if it is OK or Skipped.
	NextStep string `json:"next_step,omitempty"`
}

// Good is a check in which all is in order.
func Good(name Name, format string, args ...any) Check {
	return Check{Name: name, Status: OK, Detail: fmt.Sprintf(format, args...)}
}

// Unknown is a check that could not be made, and why.
func Unknown(name Name, format string, args ...any) Check {
	return Check{Name: name, Status: Skipped, Detail: fmt.Sprintf(format, args...)}
}

// Problem is a check with a problem; its status and next step are those of the cause.
func Problem(name Name, cause Cause, format string, args ...any) Check {
	m := meaningOf(cause)
	return Check{Name: name, Status: m.status, Cause: cause, Detail: fmt.Sprintf(format, args...), NextStep: m.step}
}

// Worse says whether a status is worse than another one.
func (s Status) Worse(than Status) bool { return s.rank() < than.rank() }

func (s Status) rank() int { return slices.Index([]Status{Failed, Warning, Skipped, OK}, s) }

// Overall is the status of a host: that of its worst check. A check that was skipped
// doesn't count, since the failure that prevented it does.
func Overall(checks []Check) Status {
	worst := OK
	for _, c := range checks {
		if c.Status != Skipped && c.Status.Worse(worst) {
			worst = c.Status
		}
	}
	return worst
}

// worst is the worst of several results of one check, the first of equals.
func worst(checks ...Check) (found Check) {
	for _, c := range checks {
		if found.Status == "" || c.Status != "" && c.Status.Worse(found.Status) {
			found = c
		}
	}
	return found
}

// together is the worst of several results of one check or, if all are in order, what all of them say.
func together(checks []Check, separator string) Check {
	found := worst(checks...)
	if found.Status == OK {
		details := make([]string, len(checks))
		for i, c := range checks {
			details[i] = c.Detail
		}
		found.Detail = strings.Join(details, separator)
	}
	return found
}
