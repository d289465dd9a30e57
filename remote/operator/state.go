// Package operator describes what a person asks a running controller to do, such as exempting a user or holding all
// enforcement.
//
//	action := operator.Action{
//		Schema: operator.ActionSchema, Kind: operator.Exempt, Reason: "paper deadline",
//		Host: "gpu-1", User: "bob", Hours: 4,
//	}
//	err := action.Check()
//
// It only has values. remote/controller carries them out, remote/live transports them.
package operator

import (
	"bytes"
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/seed-3119e985/genv/enforce"
	"github.com/seed-3119e985/genv/enforce/guard"
	"github.com/seed-3119e985/genv/enforce/policy"
	"github.com/seed-3119e985/genv/snapshot/text"
)

// State is the lasting effect of operators' requests. It is a value.
type State struct {
	Exemptions policy.ExemptionList `json:"exemptions"`
	Hold       *OnHold              `json:"hold,omitempty"` // nil if not on hold
}

// OnHold means that rules do nothing until released.
type OnHold struct {
	Since  time.Time `json:"since"`
	By     string    `json:"by"`
	Reason string    `json:"reason"`
}

// String is a line about it.
func (h *OnHold) String() string {
	return fmt.Sprintf("enforcement is on hold since %s by %s: %s", h.Since.Local().Format(time.DateTime), h.By,
		h.Reason)
}

// With combines the holds and exemptions of both states.
func (s State) With(other State) State {
	if s.Hold == nil {
		s.Hold = other.Hold
	}
	for _, e := range other.Exemptions {
		known := slices.ContainsFunc(s.Exemptions, func(own policy.Exemption) bool {
			return own.Same(&e.Who) && !own.Until.Before(e.Until) && own.Begun(e.From)
		})
		if longer, err := s.Exemptions.Add(e); !known && err == nil { // with too many, the first ones stay
			s.Exemptions = longer
		}
	}
	return s
}

// Policy returns the policy to judge by.
func (s State) Policy(base enforce.Policy, now time.Time) enforce.Policy {
	if len(s.Exemptions) > 0 {
		base = policy.WithExemptions(base, s.Exemptions, now)
	}
	if s.Hold != nil {
		base = paused{base, s.Hold.String()}
	}
	return base
}

// paused is a policy without actions.
type paused struct {
	enforce.Policy
	because string
}

// Settings implements enforce.Policy: the guard reports and denies nothing.
func (p paused) Settings(q enforce.Query) *enforce.Settings {
	s := *p.Policy.Settings(q)
	s.Guard.Mode = min(s.Guard.Mode, guard.Watch)
	return &s
}

// Fleet implements enforce.Policy.
func (p paused) Fleet() enforce.Fleet {
	fleet := p.Policy.Fleet()
	fleet.Limits.Paused = p.because
	return fleet
}

const fileSchema = "genv.controller.operator/1"

type file struct {
	Schema string          `json:"schema"`
	Time   time.Time       `json:"time"`
	SHA256 string          `json:"sha256"` // of time and state: damage can't lengthen exemptions or end a hold
	State  json.RawMessage `json:"state"`
}

func (f *file) sum() string {
	sum := sha256.Sum256(append([]byte(f.Time.Format(time.RFC3339Nano)+"\n"), f.State...))
	return hex.EncodeToString(sum[:])
}

// at has times by now's clock, like enforce.Memory.At.
func (s State) at(now time.Time) State {
	wall := func(t time.Time) time.Time { return now.Add(t.Sub(now)).Round(time.Second).UTC() }
	s.Exemptions = s.Exemptions.Move(wall)
	if s.Hold != nil {
		hold := *s.Hold
		hold.Since = wall(hold.Since)
		s.Hold = &hold
	}
	return s
}

// Empty says whether no request has a lasting effect.
func (s State) Empty() bool { return len(s.Exemptions) == 0 && s.Hold == nil }

// Content is the state in a file.
func (s State) Content(now time.Time) ([]byte, error) { return json.Marshal(s.at(now)) }

// Encode returns the state as a file, with times by now's clock.
func (s State) Encode(now time.Time) ([]byte, error) {
	state, err := s.Content(now)
	if err != nil {
		return nil, err
	}
	f := file{Schema: fileSchema, Time: now.Round(0).UTC(), State: state}
	f.SHA256 = f.sum()
	return json.Marshal(f)
}

// Decode reverses Encode. Setting the clock back lengthens no exemption. The times are monotonic.
func Decode(data []byte, now time.Time) (State, error) {
	var f file
	if err := json.Unmarshal(data, &f); err != nil {
		return State{}, err
	}
	switch {
	case f.Schema != fileSchema:
		return State{}, fmt.Errorf("it is of another version: %q", f.Schema)
	case f.SHA256 != f.sum():
		return State{}, errors.New("its checksum is wrong")
	}
	var s State
	decoder := json.NewDecoder(bytes.NewReader(f.State))
	decoder.DisallowUnknownFields() // it may limit an exemption
	if err := decoder.Decode(&s); err != nil {
		return State{}, err
	}
	for i := range s.Exemptions {
		if err := s.Exemptions[i].Check(); err != nil {
			return State{}, fmt.Errorf("exemption %d: %w", i+1, err)
		}
	}
	if len(s.Exemptions) > policy.MaxExemptions {
		return State{}, fmt.Errorf("it has %d exemptions", len(s.Exemptions))
	}
	back := max(f.Time.Sub(now), 0)
	s.Exemptions = s.Exemptions.Move(func(t time.Time) time.Time { return now.Add(t.Sub(now) - back) })
	return s, nil
}

// Lost is the state after an unreadable save: there may have been a hold.
func Lost(now time.Time) State {
	return State{Hold: &OnHold{Since: now, By: "genv", Reason: "what operators asked for before can't be read; " +
		"release when you have looked at it"}}
}

// After returns the state after an action, and a line about it. The error is a *Refusal.
func (s State) After(who Author, a *Action, now time.Time) (next State, line string, err error) {
	switch a.Kind {
	case Exempt:
		return s.exempt(who, a, now)
	case Unexempt:
		w := a.Exemption().Who
		list, ended, found := s.Exemptions.Remove(w)
		if !found {
			return s, "", Refuse(Changed, "Look again: the view shows the exemptions that there are.",
				"there is no exemption of %s", w.String())
		}
		s.Exemptions = list
		return s, fmt.Sprintf("%s ended the exemption of %s%s (its reason: %s; made by %s)", who, w.String(),
			because(a), ended.Reason, ended.By), nil
	case Hold:
		if s.Hold != nil {
			return s, "", Refuse(Changed, "Release it first to change the reason.", "%s", s.Hold)
		}
		s.Hold = &OnHold{Since: now, By: who.String(), Reason: a.Reason}
		return s, fmt.Sprintf("%s put enforcement on hold: %s", who, a.Reason), nil
	case Release:
		if s.Hold == nil {
			return s, "", Refuse(Changed, "Look again: the view shows whether there is a hold.",
				"enforcement is not on hold")
		}
		before := s.Hold
		s.Hold = nil
		return s, fmt.Sprintf("%s released enforcement%s (it was on hold by %s: %s)", who, because(a), before.By,
			before.Reason), nil
	case Explain:
	}
	return s, "", RefuseInvalid("unknown action %s", text.Shown(string(a.Kind)))
}

func (s State) exempt(who Author, a *Action, now time.Time) (State, string, error) {
	length, err := policy.ExemptionHours(a.Hours)
	if err != nil {
		return s, "", RefuseInvalid("%v", err)
	}
	e := a.Exemption()
	e.By, e.Created, e.Until = who.String(), now, cmp.Or(e.From, now).Add(length)
	at := slices.IndexFunc(s.Exemptions, func(other policy.Exemption) bool { return other.Same(&e.Who) })
	if at >= 0 && !e.Begun(now) && s.Exemptions[at].Begun(now) { // it would end before the new one begins
		return s, "", Refuse(Unable, "End it first, or have the new one begin at once.", "%s",
			s.Exemptions[at].String())
	}
	list, err := s.Exemptions.Add(e)
	if err != nil {
		return s, "", Refuse(Unable, "End other exemptions, or correct this one.", "%v", err)
	}
	s.Exemptions = list
	return s, fmt.Sprintf("%s exempted %s %s: %s", who, e.Who.String(), e.Times(), a.Reason), nil
}

func because(a *Action) string {
	if a.Reason == "" {
		return ""
	}
	return ": " + a.Reason
}
