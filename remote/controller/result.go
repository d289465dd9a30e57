package controller

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/seed-3119e985/genv/enforce"
	"github.com/seed-3119e985/genv/enforce/order"
	"github.com/seed-3119e985/genv/remote"
	"github.com/seed-3119e985/genv/remote/agent"
	"github.com/seed-3119e985/genv/snapshot"
	"github.com/seed-3119e985/genv/snapshot/text"
)

// OrderResult is an order and the answer of its host.
type OrderResult struct {
	Cycle     int // the number of the round that sent it
	Host      snapshot.Hostname
	Order     order.Order
	Execution agent.Execution
	Err       error
	Findings  []enforce.Finding // that caused it
}

// Undone is why nothing of the order was done, if an item had one of these outcomes; else it is empty.
func (r *OrderResult) Undone(because ...order.OutcomeStatus) (reason string) {
	for _, o := range r.outcomes() {
		if o.Status.Ended() || o.Status == order.StatusDetached {
			return ""
		}
		if slices.Contains(because, o.Status) {
			reason = cmp.Or(reason, fmt.Sprintf("%s: %s", o.Status, o.Reason))
		}
	}
	return reason
}

// nothingDone are the classes of errors after which the host certainly did nothing.
var nothingDone = []remote.Class{
	remote.Unreachable, remote.HostKey, remote.HostKeyChanged, remote.Auth, remote.Sudo, remote.SudoRefused,
	remote.GenvMissing, remote.Version, remote.Configuration, remote.Cancelled, remote.Replaced,
}

// outcomes has one outcome for each item. Version 1.4.3 reports none, so its lines of text tell them.
func (r *OrderResult) outcomes() []order.Outcome {
	if r.Err == nil && r.Execution.Outcomes != nil {
		return r.Execution.Outcomes
	}
	fallback := order.Outcome{Status: order.StatusUnknown, Reason: "the host did not say what came of it"}
	if r.Err != nil {
		fallback.Reason = r.Err.Error()
		if errors.Is(r.Err, agent.ErrNotSent) || errors.Is(r.Err, agent.ErrRefused) ||
			slices.Contains(nothingDone, remote.ClassOf(r.Err)) {
			fallback.Status = order.StatusFailed
		}
	}
	var list []order.Outcome
	said := func(item order.Outcome, lines []string, status order.OutcomeStatus) order.Outcome {
		isAbout := func(l string) bool { return slices.Contains(lines, strings.TrimSpace(l)) }
		if slices.ContainsFunc(r.Execution.Lines, isAbout) {
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

const maxHostWords = 128 // characters of an unknown line

// shownLines are the lines of a host as people read them. Those about the order are in genv's own words, since 1.4.3
// prints names that users choose and environments that processes claim. All others are quoted.
func shownLines(o order.Order, lines []string) []string {
	shown := make(map[string]string)
	for i := range o.Detach {
		d := &o.Detach[i]
		shown[d.String()], shown[d.Raw()] = d.String(), d.String()
	}
	allSteps := order.Options{Kill: true} // whatever this order asks for
	for i := range o.Terminate {
		t := &o.Terminate[i]
		shown[t.Raw()] = t.String()
		for _, step := range allSteps.Steps() {
			said := step.Verb + " " + t.Object()
			shown[said] = said
		}
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
