package config

import (
	"slices"
	"strings"
)

// vetMatch tells what cannot be honoured about a Match line: programs that it
// would run, and criteria that not every OpenSSH has.
func vetMatch(words []string) string {
	if len(words) == 0 {
		return "Match has no criterion"
	}
	for i := 0; i < len(words); i++ {
		switch criterion := strings.ToLower(strings.TrimPrefix(words[i], "!")); criterion {
		case "all":
			others := slices.DeleteFunc(slices.Clone(words), func(w string) bool { return strings.EqualFold(w, "final") || strings.EqualFold(w, "canonical") })
			if len(others) != 1 || i != len(words)-1 || len(words) > 2 || words[i][0] == '!' {
				return "Match all with other criteria cannot be honoured"
			}
		case "final", "canonical":
		case "host", "originalhost", "user", "localuser":
			if i++; i == len(words) || words[i] == "" {
				return "Match " + criterion + " has no pattern"
			}
		default:
			return "Match " + criterion + " cannot be honoured"
		}
	}
	return ""
}

// holds tells whether all criteria of a Match line hold at this point of the
// configuration: host and user are those that the lines before have made.
func (w *walk) holds(words []string) bool {
	holds := true
	for i := 0; i < len(words); i++ {
		criterion, negated := strings.CutPrefix(words[i], "!")
		this := true
		switch strings.ToLower(criterion) {
		case "final":
			w.wantsFinal = true
			this = w.final
		case "canonical":
			this = w.final
		case "host":
			i++
			this = matchesAny(strings.Split(strings.ToLower(words[i]), ","), strings.ToLower(w.target()))
		case "originalhost":
			i++
			this = matchesAny(strings.Split(strings.ToLower(words[i]), ","), strings.ToLower(w.query.Host))
		case "user":
			i++
			this = matchesAny(strings.Split(words[i], ","), or(w.first("user"), w.who.user))
		case "localuser":
			i++
			this = matchesAny(strings.Split(words[i], ","), w.who.user)
		}
		holds = holds && this != negated
	}
	return holds
}
