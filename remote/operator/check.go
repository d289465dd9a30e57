package operator

import (
	"fmt"
	"slices"
	"strings"

	"github.com/seed-3119e985/genv/enforce/exemption"
	"github.com/seed-3119e985/genv/snapshot/text"
)

// Refuse returns a Refusal.
func Refuse(code Code, nextStep, format string, args ...any) *Refusal {
	return &Refusal{Schema: AnswerSchema, Code: code, Text: fmt.Sprintf(format, args...), NextStep: nextStep}
}

func invalid(format string, args ...any) error {
	return Refuse(Invalid, "Correct the request; docs/json.md describes it.", format, args...)
}

// Check returns a *Refusal of the code Invalid if an action is incomplete or says more than
// its kind has a use for: it may have been meant otherwise. A reason is always needed,
// except to end a hold or an exemption.
func (a *Action) Check() error {
	if a.Schema != ActionSchema {
		return invalid("schema %s: this controller knows %s", text.Shown(a.Schema), ActionSchema)
	}
	if !slices.Contains(Kinds(), a.Kind) {
		return invalid("unknown action %s", text.Shown(string(a.Kind)))
	}
	if a.Reason == "" && a.Kind != Release && a.Kind != Unexempt {
		return invalid("%s needs a reason", a.Kind)
	}
	if a.Reason != "" {
		if err := exemption.CheckReason(a.Reason); err != nil {
			return invalid("%v", err)
		}
	}
	switch a.Kind {
	case Exempt, Unexempt:
		return a.checkExemption()
	case Hold, Release:
		return a.checkOnly()
	case Terminate, Warn, Detach:
	}
	return a.checkRow()
}

// checkRow checks an action on a process or an attachment.
func (a *Action) checkRow() error {
	process, attachment := a.PID > 0 && a.Start > 0, a.Device != nil && a.EID != ""
	switch {
	case a.Host == "":
		return invalid("%s needs a host", a.Kind)
	case a.Kind == Terminate && !process:
		return invalid("terminate needs the pid and the start of a process")
	case a.Kind == Detach && (!attachment || a.PID != 0):
		return invalid("detach needs the device and the eid of an attachment, and no process")
	case a.PID != 0 && !process:
		return invalid("a process needs pid and start")
	case !process && !attachment:
		return invalid("%s needs pid and start, or device and eid", a.Kind)
	}
	return a.checkOnly("host", "pid", "start", "device", "eid", "user")
}

// checkExemption checks what exemption.Exemption.Check doesn't know: the fields that an
// exemption doesn't have.
func (a *Action) checkExemption() error {
	e := a.Exemption()
	if err := e.Who.Check(); err != nil {
		return invalid("%v", err)
	}
	if a.Kind == Unexempt {
		return a.checkOnly("host", "device", "user", "rule")
	}
	if _, err := exemption.Hours(a.Hours); err != nil {
		return invalid("%v", err)
	}
	return a.checkOnly("host", "device", "user", "rule", "hours")
}

// checkOnly refuses fields that are set and not among those that are used.
func (a *Action) checkOnly(used ...string) error {
	var needless []string
	for name, set := range map[string]bool{
		"host": a.Host != "", "pid": a.PID != 0, "start": a.Start != 0, "device": a.Device != nil, "eid": a.EID != "",
		"user": a.User != "", "rule": a.Rule != "", "hours": a.Hours != 0,
	} {
		if set && !slices.Contains(used, name) {
			needless = append(needless, name)
		}
	}
	if len(needless) == 0 {
		return nil
	}
	slices.Sort(needless)
	return invalid("%s has no use for %s", a.Kind, strings.Join(needless, ", "))
}

// Exemption is what Exempt and Unexempt are about, without its author and times.
func (a *Action) Exemption() exemption.Exemption {
	return exemption.Exemption{Who: exemption.Who{User: a.User, Host: a.Host, Device: a.Device, Rule: a.Rule}, Reason: a.Reason}
}
