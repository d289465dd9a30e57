package config

import "strings"

// lex splits a line as ssh does into its keyword, in lower case, and its words.
// An empty keyword is a line without content. Backslashes and single quotes,
// which versions of OpenSSH interpret differently, are refused.
func lex(line string) (keyword string, words []string, problem string) {
	line = strings.Trim(line, " \t\r\n\f")
	if line == "" || line[0] == '#' {
		return "", nil, ""
	}
	end := strings.IndexAny(line, " \t=")
	if end < 0 {
		return strings.ToLower(line), nil, ""
	}
	keyword = strings.ToLower(line[:end])
	rest := strings.TrimLeft(line[end:], " \t")
	if strings.HasPrefix(rest, "=") {
		rest = strings.TrimLeft(rest[1:], " \t")
	}
	if strings.ContainsAny(keyword, `"'\`) {
		return keyword, nil, "a quoted keyword cannot be honoured"
	}
	if keyword == "proxycommand" || keyword == "knownhostscommand" { // not split: quotes and # are part of it
		return keyword, []string{rest}, ""
	}
	words, problem = split(rest)
	return keyword, words, problem
}

// split splits words at spaces and tabs outside double quotes, up to a comment.
func split(text string) (words []string, problem string) {
	if strings.ContainsAny(text, `'\`) {
		return nil, "backslashes and single quotes cannot be honoured"
	}
	for {
		text = strings.TrimLeft(text, " \t")
		if text == "" || text[0] == '#' {
			return words, ""
		}
		end := strings.IndexAny(text, " \t")
		if text[0] == '"' {
			if end = strings.IndexByte(text[1:], '"') + 2; end == 1 {
				return nil, "a quote is not closed"
			}
		} else if end < 0 {
			end = len(text)
		}
		word := text[:end]
		if text = text[end:]; text != "" && text[0] != ' ' && text[0] != '\t' || strings.Contains(strings.Trim(word, `"`), `"`) {
			return nil, "a quote within a word cannot be honoured"
		}
		words = append(words, strings.Trim(word, `"`))
	}
}

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
