package fleet

import (
	"cmp"
	"fmt"
	"time"

	enforcelocal "github.com/seed-3119e985/genv/enforce/local"
	"github.com/seed-3119e985/genv/enforce/policy"
	"github.com/seed-3119e985/genv/snapshot"
	"github.com/seed-3119e985/genv/snapshot/state/service"
)

// errUntold is what a host says that doesn't know what holds there.
func errUntold(told *service.Allowance) error {
	return fmt.Errorf("%s enforces a policy on this host, and has not said since %s what holds here, so genv doesn't know "+
		"it: ask %s, or use --policy FILE", cmp.Or(told.By, "a controller"), told.Since.Local().Format(time.DateTime),
		cmp.Or(told.Contact, "your administrator"))
}

// writeTold prints what a controller told this host about who asks.
func (o *explainOptions) writeTold(told *service.Allowance) error {
	if told.Expired {
		return errUntold(told)
	}
	from := fmt.Sprintf("%s, since %s", told.By, told.Since.Local().Format(time.DateTime))
	rules, person := told.Rules, service.Person{}
	for _, person = range told.People {
		if person.Rules != nil {
			rules = person.Rules
		}
	}
	var list []policy.Explanation
	for _, r := range rules {
		list = append(list, policy.Explanation{Key: r.Key, Value: r.Value, From: from})
	}
	for _, c := range told.CapTexts(person) {
		list = append(list, policy.Explanation{Key: "cap " + c.Key, Value: c.Value, From: from})
	}
	if told.Contact != "" {
		list = append(list, policy.Explanation{Key: "contact", Value: told.Contact, From: from})
	}
	o.query.Host, o.query.Labels = snapshot.Hostname(enforcelocal.Hostname()), map[string]string{}
	return o.writeExplanation(o.output, o.query, list)
}
