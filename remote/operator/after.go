package operator

import (
	"fmt"
	"time"

	"github.com/seed-3119e985/genv/enforce/exemption"
)

// After returns the state after an action that lasts, and a line about it. The error is a
// *Refusal.
func (s State) After(who Person, a *Action, now time.Time) (next State, line string, err error) {
	switch a.Kind {
	case Exempt:
		return s.exempt(who, a, now)
	case Unexempt:
		w := a.Exemption().Who
		list, ended, found := s.Exemptions.Remove(w)
		if !found {
			return s, "", Refuse(Changed, "Look again: the view shows the exemptions that there are.", "there is no exemption of %s", w.String())
		}
		s.Exemptions = list
		return s, fmt.Sprintf("%s ended the exemption of %s%s (it was %s by %s)", who, w.String(), because(a), ended.Reason, ended.By), nil
	case Hold:
		if s.Hold != nil {
			return s, "", Refuse(Changed, "Release it first to change the reason.", "%s", s.Hold)
		}
		s.Hold = &OnHold{Since: now, By: who.String(), Reason: a.Reason}
		return s, fmt.Sprintf("%s put enforcement on hold: %s", who, a.Reason), nil
	case Release:
		if s.Hold == nil {
			return s, "", Refuse(Changed, "Look again: the view shows whether there is a hold.", "enforcement is not on hold")
		}
		before := s.Hold
		s.Hold = nil
		return s, fmt.Sprintf("%s released enforcement%s (it was on hold by %s: %s)", who, because(a), before.By, before.Reason), nil
	case Terminate, Warn, Detach:
	}
	return s, "", invalid("%s does not last", a.Kind)
}

func (s State) exempt(who Person, a *Action, now time.Time) (State, string, error) {
	length, err := exemption.Hours(a.Hours)
	if err != nil {
		return s, "", invalid("%v", err)
	}
	e := a.Exemption()
	e.By, e.Created, e.Until = who.String(), now, now.Add(length)
	list, err := s.Exemptions.Add(e)
	if err != nil {
		return s, "", Refuse(Unable, "End other exemptions, or correct this one.", "%v", err)
	}
	s.Exemptions = list
	return s, fmt.Sprintf("%s exempted %s until %s: %s", who, e.Who.String(), e.Until.Local().Format(time.DateTime), a.Reason), nil
}

func because(a *Action) string {
	if a.Reason == "" {
		return ""
	}
	return ": " + a.Reason
}
