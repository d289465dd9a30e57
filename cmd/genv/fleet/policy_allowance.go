package fleet

import (
	"cmp"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/urfave/cli/v2"

	enforcelocal "github.com/seed-3119e985/genv/enforce/local"
	"github.com/seed-3119e985/genv/enforce/policy"
	"github.com/seed-3119e985/genv/remote/live"
	"github.com/seed-3119e985/genv/remote/live/socket"
	"github.com/seed-3119e985/genv/remote/operator"
	"github.com/seed-3119e985/genv/snapshot"
	"github.com/seed-3119e985/genv/snapshot/state/service"
)

// errExpired is what a host says that isn't told any more what holds there.
func errExpired(told *service.Allowance) error {
	return fmt.Errorf("%s enforces a policy on this host, and has not said since %s what holds here, so genv doesn't know "+
		"it: ask %s, or use --policy FILE", cmp.Or(told.By, "a controller"), told.Since.Local().Format(time.DateTime),
		cmp.Or(told.Contact, "your administrator"))
}

// writeTold prints what a controller told this host about who asks.
func (o *explainOptions) writeTold(told *service.Allowance) error {
	if told.Expired {
		return errExpired(told)
	}
	from := fmt.Sprintf("%s, since %s", told.By, told.Since.Local().Format(time.DateTime))
	rules, person := told.Rules, service.Person{}
	for _, person = range told.People {
		if person.Rules != nil {
			rules = person.Rules
		}
	}
	if told.Unknown() {
		o.Warn(service.CapsUnknown)
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

// countedNow is what a controller that runs on this machine counts now for the user on the host.
func (o *explainOptions) countedNow(c *cli.Context) (list []policy.Explanation) {
	path := socket.Find(o.Getenv, os.Geteuid())
	if o.query.User == "" || o.query.Host == "" || c.IsSet("at") || path == "" || path == socket.Off {
		return nil
	}
	if living, err := socket.Answers(c.Context, path); err != nil || !living {
		return nil
	}
	answer, err := live.SendAction(c.Context, path, operator.Instruction{
		Schema: operator.ActionSchema, Kind: operator.Explain, Host: o.query.Host, User: o.query.User,
	})
	if err != nil {
		o.Warn(fmt.Sprintf("what counts now is unknown: %v", err))
		return nil
	}
	for line := range strings.SplitSeq(answer.Text, "\n") {
		if key, value, _ := strings.Cut(line, ": "); line != "" {
			list = append(list, policy.Explanation{Key: "now " + key, Value: value, From: "the controller that runs"})
		}
	}
	return list
}
