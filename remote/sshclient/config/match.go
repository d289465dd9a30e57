package config

import (
	"cmp"
	"slices"
	"strings"
)

// vetMatch returns the problem of a Match line: criteria that run programs, and
// criteria that not every OpenSSH has.
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

// holds says whether all criteria of a Match line hold at this point of the
// configuration: host and user are those of the lines before it.
func (w *walk) holds(words []string) bool {
	holds := true
	for i := 0; i < len(words); i++ {
		criterion, negated := strings.CutPrefix(words[i], "!")
		criterion = strings.ToLower(criterion)
		var value string
		switch criterion {
		case "host":
			value = strings.ToLower(w.target())
		case "originalhost":
			value = strings.ToLower(w.query.Host)
		case "user":
			value = cmp.Or(w.first("user"), w.who.user)
		case "localuser":
			value = w.who.user
		case "final", "canonical":
			w.wantsFinal = w.wantsFinal || criterion == "final"
			holds = holds && w.final != negated
			continue
		case "all":
			holds = holds && !negated
			continue
		}
		i++
		patterns := words[i]
		if strings.HasSuffix(criterion, "host") {
			patterns = strings.ToLower(patterns)
		}
		holds = holds && MatchesAny(strings.Split(patterns, ","), value) != negated
	}
	return holds
}
