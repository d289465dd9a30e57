package enforcement

import (
	"maps"
	"reflect"
	"time"

	"github.com/seed-3119e985/genv/enforce"
	"github.com/seed-3119e985/genv/remote/controller"
	"github.com/seed-3119e985/genv/remote/operator"
	"github.com/seed-3119e985/genv/snapshot"
	hostservice "github.com/seed-3119e985/genv/snapshot/state/service"
)

// allowanceSink has hosts told after each cycle how many GPUs the policy allows users.
type allowanceSink struct {
	policy enforce.Policy
	named  []snapshot.Username   // by the policy
	always hostservice.Allowance // what is the same in each cycle
	last   *hostservice.Allowance
	tell   func(*hostservice.Allowance)
}

func newAllowanceSink(o *Options) *allowanceSink {
	return &allowanceSink{policy: o.policy(), named: o.Policy.Named(), tell: o.Allow, always: hostservice.Allowance{
		OneHost: o.LocalName != "", ForMS: max(time.Minute, 3*o.Interval).Milliseconds(),
	}}
}

// Consume implements controller.Sink.
func (s *allowanceSink) Consume(cycle *controller.Cycle, _ []enforce.Event) {
	if !cycle.Ended || cycle.Stopped {
		return
	}
	next := s.at(cycle)
	if s.last == nil || !reflect.DeepEqual(next, *s.last) {
		s.last = &next
	}
	s.tell(s.last)
}

// at is what the policy and the exemptions of operators allow at the time of a cycle.
func (s *allowanceSink) at(cycle *controller.Cycle) hostservice.Allowance {
	policy := operator.State{Exemptions: cycle.Exemptions}.Policy(s.policy, cycle.Start)
	of := func(user snapshot.Username) *int {
		if _, exempt := policy.Exempt(enforce.Subject{User: user}); exempt {
			return nil
		}
		return policy.Settings(enforce.Query{User: user, At: cycle.Start}).MaxDevices
	}
	differ := make(map[snapshot.Username]*int)
	for _, user := range s.named {
		differ[user] = of(user)
	}
	for i := range cycle.Exemptions {
		if user := cycle.Exemptions[i].User; user != "" {
			differ[user] = of(user)
		}
	}
	next := s.always
	next.GPUs = of("")
	maps.DeleteFunc(differ, func(_ snapshot.Username, own *int) bool { return reflect.DeepEqual(own, next.GPUs) })
	if len(differ) > 0 {
		next.Users = differ
	}
	return next
}
