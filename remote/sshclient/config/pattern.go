package config

import "strings"

// matches is the pattern match of OpenSSH: `*` is any text, `?` any one byte.
func matches(pattern, text string) bool {
	star, retry := -1, 0 // the last `*`, and where the text after it begins
	p, t := 0, 0
	for t < len(text) {
		switch {
		case p < len(pattern) && pattern[p] == '*':
			star, retry = p, t
			p++
		case p < len(pattern) && (pattern[p] == '?' || pattern[p] == text[t]):
			p, t = p+1, t+1
		case star >= 0:
			retry++
			p, t = star+1, retry
		default:
			return false
		}
	}
	return strings.Trim(pattern[p:], "*") == ""
}

// MatchesAny says whether a pattern of ssh_config or known_hosts matches and no
// negated one does.
func MatchesAny(patterns []string, text string) bool {
	found := false
	for _, pattern := range patterns {
		plain, negated := strings.CutPrefix(pattern, "!")
		switch {
		case !matches(plain, text):
		case negated:
			return false
		default:
			found = true
		}
	}
	return found
}
