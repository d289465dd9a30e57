package bundle

import (
	"regexp"
	"strings"
	"sync"
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

// Redact removes secrets from a text.
func Redact(text string) string {
	for _, p := range patterns() {
		text = p.matches.ReplaceAllStringFunc(text, func(found string) string {
			return p.instead(p.matches.FindStringSubmatch(found))
		})
	}
	return text
}
