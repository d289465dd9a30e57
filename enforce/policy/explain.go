package policy

import (
	"strconv"

	"github.com/seed-3119e985/genv/enforce"
)

// Explanation is a setting, its value, and where the value comes from.
type Explanation struct {
	Key   string `json:"key"` // as in the file
	Value string `json:"value"`
	From  string `json:"from"`
}

// Explain lists what applies to a host and a user at a time, and why: exemptions
// first, then the settings, then what applies to the whole fleet.
func (f *File) Explain(q enforce.Query) []Explanation {
	q.User = f.Accounts.Name(q.User)
	var list []Explanation
	if from, ok := f.Exemptions.Host(q.Host); ok {
		list = append(list, Explanation{"exempt", "host " + string(q.Host), from.String()})
	}
	if from, ok := f.Exemptions.User(q.User); ok {
		list = append(list, Explanation{"exempt", "user " + string(q.User), from.String()})
	}
	settings := f.Resolve(q)
	for _, field := range fields {
		list = append(list, Explanation{field.key, field.text(&settings), field.from(&settings).String()})
	}
	for _, limit := range f.Limits.each() {
		text := "off"
		if limit.at.On {
			text = strconv.Itoa(limit.at.Value)
		}
		list = append(list, Explanation{limit.key, text, limit.at.From.String()})
	}
	return append(list,
		Explanation{"over-limit", onOffText(f.Limits.Throttle, "throttle", "hold"), f.Limits.Throttle.From.String()},
		Explanation{"unreachable", string(f.Unreachable.Value), f.Unreachable.From.String()},
		Explanation{"tell-users", onOffText(f.TellUsers, "on", "off"), f.TellUsers.From.String()},
	)
}
