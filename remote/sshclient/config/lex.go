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
	if keyword == "proxycommand" { // not split: quotes and # are part of it
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
	for pattern != "" {
		switch {
		case pattern[0] == '*':
			for pattern = strings.TrimLeft(pattern, "*"); ; text = text[1:] {
				if matches(pattern, text) {
					return true
				}
				if text == "" {
					return false
				}
			}
		case text == "" || pattern[0] != '?' && pattern[0] != text[0]:
			return false
		}
		pattern, text = pattern[1:], text[1:]
	}
	return text == ""
}

// matchesAny says whether a pattern matches and no negated one does.
func matchesAny(patterns []string, text string) bool {
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
