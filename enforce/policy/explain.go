package policy

import (
	"strconv"

	"github.com/seed-3119e985/genv/enforce"
)

// Explanation is a setting, what it is, and where that comes from.
type Explanation struct {
	Key   string `json:"key"` // as in the file
	Value string `json:"value"`
	From  string `json:"from"`
}

// Explain is what holds for a host and a user at a time, and why: exemptions
// first, then the settings, then what holds for the whole fleet.
func (f *File) Explain(q enforce.Query) []Explanation {
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
		list = append(list, Explanation{limit.key, limitText(*limit.at), limit.at.From.String()})
	}
	return append(list,
		Explanation{"over-limit", map[bool]string{true: "throttle", false: "hold"}[f.Limits.Throttle.On], f.Limits.Throttle.From.String()},
		Explanation{"unreachable", string(f.Unreachable.Value), f.Unreachable.From.String()},
		Explanation{"tell-users", map[bool]string{true: "on", false: "off"}[f.TellUsers.On], f.TellUsers.From.String()},
	)
}

func limitText(v Value[int]) string {
	if !v.On {
		return "off"
	}
	return strconv.Itoa(v.Value)
}
