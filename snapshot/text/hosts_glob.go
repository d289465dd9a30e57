package text

import (
	"fmt"
	"strings"
)

// HostGlob is a host name in which * is any text and ? any character. It may have ranges,
// as a HostPattern: rack[1-2]-* begins with rack1- or rack2-. It lists no names; it
// matches known ones.
type HostGlob struct {
	text  string
	parts []hostPart // those of * and ? are these literals
}

// wildcards are what makes a host name a HostGlob.
const wildcards = "*?"

// IsHostGlob says whether a host name is a HostGlob.
func IsHostGlob(name string) bool { return strings.ContainsAny(name, wildcards) }

// ParseHostGlob reads a HostGlob. Its error is one line that says what to write instead.
func ParseHostGlob(text string) (HostGlob, error) {
	g := HostGlob{text: text}
	if text != "" && text[0] == '-' {
		return HostGlob{}, fmt.Errorf("%q: a host name must begin with a letter or a digit", text)
	}
	if len(text) > maxHostName {
		return HostGlob{}, fmt.Errorf("%.20q…: a host name has at most %d characters", text, maxHostName)
	}
	for rest := strings.TrimSuffix(text, "."); rest != ""; {
		if strings.Contains(wildcards, rest[:1]) {
			g.parts, rest = append(g.parts, hostPart{literal: rest[:1]}), rest[1:]
			continue
		}
		end := len(rest)
		if i := strings.IndexAny(rest, wildcards); i >= 0 && rest[0] != '[' {
			end = i
		}
		part, left, err := parseHostPart(rest[:end])
		if err != nil {
			return HostGlob{}, fmt.Errorf("%q: %w", text, err)
		}
		part.literal = strings.ToLower(part.literal)
		g.parts, rest = append(g.parts, part), left+rest[end:]
	}
	return g, nil
}

// String is the glob as it was written.
func (g HostGlob) String() string { return g.text }

// Matches says whether the glob matches a name. It takes time in proportion to the length
// of the name and of the glob, also with many stars.
func (g HostGlob) Matches(name string) bool {
	name = FoldHost(name)
	at := make([]bool, len(name)+1) // how far the parts so far may reach
	at[0] = true
	for _, part := range g.parts {
		next := make([]bool, len(at))
		for i, reached := range at {
			if reached {
				part.reach(name, i, next)
			}
		}
		at = next
	}
	return at[len(name)]
}

// reach marks where the part may end in a name if it begins at an index.
func (p hostPart) reach(name string, from int, ends []bool) {
	rest := name[from:]
	switch {
	case p.ranges != nil:
		for n := 1; n <= min(len(rest), maxDigits) && isDigit(rest[n-1]); n++ {
			for _, r := range p.ranges {
				ends[from+n] = ends[from+n] || r.contains(rest[:n])
			}
		}
	case p.literal == "*":
		for i := from; i < len(ends) && (i == from || !ends[i]); i++ { // from there on all are marked
			ends[i] = true
		}
	case p.literal == "?":
		if rest != "" {
			ends[from+1] = true
		}
	case strings.HasPrefix(rest, p.literal):
		ends[from+len(p.literal)] = true
	}
}
