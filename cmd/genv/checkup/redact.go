package checkup

import (
	"encoding/json"
	"errors"
	"regexp"
	"strings"
	"sync"

	"github.com/goccy/go-yaml"

	"github.com/seed-3119e985/genv/snapshot/strictyaml"
)

// Removed is written in the place of what was removed.
const Removed = "[removed]"

// pattern is a kind of secret, and what stays of a match.
type pattern struct {
	matches *regexp.Regexp
	instead func(match []string) string
}

// patterns are made when they are first used. Their order matters: a whole key before the
// words in it.
var patterns = sync.OnceValue(func() []pattern {
	keep := func(groups ...int) func([]string) string {
		return func(match []string) string {
			var b strings.Builder
			for _, g := range groups {
				b.WriteString(match[g])
			}
			return b.String() + Removed
		}
	}
	const key = `[\w.-]*(?:passw|pass_?phrase|pwd|secret|token|api[_-]?key|authorization|credential|cookie|private[_-]?key|webhook|auth_?key)[\w.-]*`
	return []pattern{
		{regexp.MustCompile(`(?s)-----BEGIN [^-\n]*-----.*?(?:-----END [^-\n]*-----|\z)`), keep()},
		{regexp.MustCompile(`(?i)\b([a-z][a-z0-9+.-]*://)(?:[^\s/@"'<>]*@)?([^\s/?#"'<>@]+)[/?#][^\s"'<>]+`), func(m []string) string { return m[1] + m[2] + "/" + Removed }},
		{regexp.MustCompile(`(?i)\b([a-z][a-z0-9+.-]*://)[^\s/"'<>]*@`), keep(1)},
		{regexp.MustCompile(`(?i)(\b(?:bearer|basic|digest)\s+)\S+`), keep(1)},
		{regexp.MustCompile(`(?i)("?\b` + key + `"?\s*[:=]\s*)[^\n]+`), keepUnlessSudo(keep(1))},
		{regexp.MustCompile(`(?i)(\s--?` + key + `\s+)\S+`), keep(1)},
		{regexp.MustCompile(`\b([A-Z_][A-Z0-9_]{2,}=)("[^"\n]*"|'[^'\n]*'|[^\s,(][^\s,]*)`), keep(1)},
		{regexp.MustCompile(`\b(?:xox[a-z]-|gh[a-z]_|github_pat_|glpat-|sk-|AKIA|ASIA|eyJ)[\w.=-]{8,}`), keep()},
		{regexp.MustCompile(`\b[0-9a-fA-F]{32,}\b`), keep()},
		{regexp.MustCompile(`(SHA256:|GPU-|MIG-)[\w+/=-]+|[A-Za-z0-9+_=-]{24,}`), keepUnlessOrdinary},
	}
})

// keepUnlessSudo leaves the tags of sudoers as they are, which look like a key.
func keepUnlessSudo(instead func([]string) string) func([]string) string {
	return func(match []string) string {
		if strings.HasPrefix(match[1], "NOPASSWD:") || strings.HasPrefix(match[1], "PASSWD:") {
			return match[0]
		}
		return instead(match)
	}
}

// keepUnlessOrdinary leaves long words that aren't made at random: those without digits,
// capitals or small letters, fingerprints of public keys and GPUs.
func keepUnlessOrdinary(match []string) string {
	word := match[0]
	random := strings.ContainsAny(word, "0123456789") && strings.ToLower(word) != word && strings.ToUpper(word) != word
	if match[1] != "" || !random {
		return word
	}
	return Removed
}

// redact removes secrets from a text.
func redact(text string) string {
	for _, p := range patterns() {
		text = p.matches.ReplaceAllStringFunc(text, func(found string) string {
			return p.instead(p.matches.FindStringSubmatch(found))
		})
	}
	return text
}

var secretKey = sync.OnceValue(func() *regexp.Regexp {
	return regexp.MustCompile(`(?i)pass|pwd|secret|token|key|auth|credential|cookie|webhook|url|header|(?:^|_)env$|environ|command|smtp|sendmail`)
})

// values removes secrets from decoded JSON or YAML: texts under a key that sounds like a
// secret, and whatever redact removes from other texts. Numbers and truth values stay.
func values(value any) any { return clean(value, false) }

// clean removes secrets and, if all is set, all texts and numbers, which may be secrets too.
func clean(value any, all bool) any {
	switch v := value.(type) {
	case map[string]any:
		cleaned := make(map[string]any, len(v))
		for name, inner := range v {
			cleaned[redact(name)] = clean(inner, all || secretKey().MatchString(name))
		}
		return cleaned
	case []any:
		cleaned := make([]any, len(v))
		for i := range v {
			cleaned[i] = clean(v[i], all)
		}
		return cleaned
	case bool, nil:
		return value
	case string:
		if !all {
			return redact(v)
		}
	case int, int64, uint64, float64, json.Number:
		if !all {
			return value
		}
	}
	return Removed
}

// cleanPolicy removes secrets from a policy file: the parts that decide about rules stay, and of
// all others, such as hooks, only the keys. Comments are dropped.
func cleanPolicy(data []byte) ([]byte, error) {
	var sections map[string]any
	// The first parser refuses what would make the second one use all memory, such as aliases
	// of aliases. Their errors would quote the file.
	if strictyaml.Parse("", data).Err() != nil || yaml.Unmarshal(data, &sections) != nil {
		return nil, errors.New("it is not valid YAML")
	}
	harmless := map[string]bool{
		"timezone": true, "defaults": true, "overrides": true, "groups": true, "schedules": true,
		"exempt": true, "unprotected": true, "limits": true, "unreachable": true, "tell-users": true,
	}
	cleaned := make(map[string]any, len(sections))
	for name, section := range sections {
		cleaned[redact(name)] = clean(section, !harmless[name])
	}
	return yaml.Marshal(cleaned)
}
