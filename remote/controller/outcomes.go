package controller

import (
	"errors"
	"slices"
	"strings"

	"github.com/seed-3119e985/genv/enforce"
	"github.com/seed-3119e985/genv/enforce/order"
	"github.com/seed-3119e985/genv/remote"
	"github.com/seed-3119e985/genv/remote/agent"
	"github.com/seed-3119e985/genv/snapshot/text"
)

// event is the event about the result.
func (r *OrderResult) event(outcomes []order.Outcome) enforce.Event {
	return enforce.Event{
		Kind: enforce.EventOutcome, Host: r.Host, Order: &r.Order, Findings: r.Findings,
		Lines: r.Execution.Lines, Warnings: r.Execution.Warnings, Outcomes: outcomes, Err: r.Err,
	}
}

// nothingDone are the classes of errors after which it is certain that the host
// did nothing.
var nothingDone = []remote.Class{
	remote.Unreachable, remote.HostKey, remote.HostKeyChanged, remote.Auth, remote.Sudo, remote.SudoRefused, remote.GenvMissing, remote.Version,
	remote.Configuration, remote.Cancelled, remote.Replaced,
}

// outcomes are what came of each item, as far as that is known: from the
// host's outcomes; or of 1.4.3, which has none, from its lines.
func (r *OrderResult) outcomes() []order.Outcome {
	if r.Err == nil && r.Execution.Outcomes != nil {
		return r.Execution.Outcomes
	}
	fallback := order.Outcome{Status: order.StatusUnknown, Reason: "the host did not say what came of it"}
	if r.Err != nil {
		fallback.Reason = r.Err.Error()
		if errors.Is(r.Err, agent.ErrNotSent) || errors.Is(r.Err, agent.ErrRefused) || slices.Contains(nothingDone, remote.ClassOf(r.Err)) {
			fallback.Status = order.StatusFailed
		}
	}
	var list []order.Outcome
	said := func(item order.Outcome, lines []string, status order.Status) order.Outcome {
		if slices.ContainsFunc(r.Execution.Lines, func(l string) bool { return slices.Contains(lines, strings.TrimSpace(l)) }) {
			item.Status = status
			return item
		}
		item.Status, item.Reason = fallback.Status, fallback.Reason
		return item
	}
	for _, d := range r.Order.Detach {
		item := order.Outcome{Device: d.Device, EID: d.Environment.EID}
		list = append(list, said(item, []string{d.String(), d.Raw()}, order.StatusDetached))
	}
	for _, t := range r.Order.Terminate {
		item := order.Outcome{PID: t.Process.PID, EID: t.Process.EID}
		list = append(list, said(item, []string{t.String(), t.Raw()}, order.StatusSignalled))
	}
	return list
}

// maxHostWords is how many characters of a line of a host's own are shown.
const maxHostWords = 128

// shownLines are a host's lines as they are shown. Those about the order are
// genv's own: 1.4.3 prints names and ids that users choose as they are, and names
// the environment that a process claims although it is in none. All others may
// contain anything that a user of the host wants an administrator to read.
func shownLines(o order.Order, lines []string) []string {
	shown := make(map[string]string)
	for i := range o.Detach {
		d := &o.Detach[i]
		shown[d.String()], shown[d.Raw()] = d.String(), d.String()
	}
	for i := range o.Terminate {
		t := &o.Terminate[i]
		shown[t.String()], shown[t.Raw()] = t.String(), t.String()
		shown[t.KillLine()] = t.KillLine()
	}
	list := slices.Clone(lines)
	for i, line := range list {
		own, known := shown[strings.TrimSpace(line)]
		if !known {
			own = "The host says: " + text.Quoted(strings.TrimSpace(line), maxHostWords)
		}
		list[i] = own
	}
	return list
}
