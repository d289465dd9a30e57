package sudoers

import (
	"errors"
	"regexp"
	"strings"
	"sync"
)

// Rules are what sudo allows a user.
type Rules struct {
	// RequireTTY says that sudo runs only from a terminal.
	RequireTTY bool
	rules      []rule
}

// rule is one command, or `ALL`.
type rule struct {
	asRoot     bool // it may be run as root
	noPassword bool
	refuses    bool   // it begins with an exclamation mark
	program    string // a path, which may have wildcards; ALL
	args       string // as written
	anyArgs    bool   // none are written: any are allowed
}

// ErrFormat says that the text is not what sudo prints.
var ErrFormat = errors.New("the output of `sudo -l` is not in the expected format")

// maxRules bounds the rules that are read.
const maxRules = 10_000

// Parse reads the output of `sudo -l` in the C locale. sudo may have wrapped its lines.
func Parse(output string) (Rules, error) {
	var r Rules
	_, listed, found := strings.Cut(output, "may run the following commands on ")
	defaults := output
	if !found {
		return r, ErrFormat
	}
	defaults = strings.TrimSuffix(defaults, listed)
	for _, word := range strings.FieldsFunc(defaults, func(c rune) bool { return c == ',' || c == ' ' || c == '\n' }) {
		switch word {
		case "requiretty":
			r.RequireTTY = true
		case "!requiretty":
			r.RequireTTY = false
		}
	}
	_, listed, _ = strings.Cut(listed, "\n")
	for _, entry := range entries(listed) {
		r.rules = append(r.rules, parseEntry(entry)...)
		if len(r.rules) > maxRules {
			return Rules{}, ErrFormat
		}
	}
	return r, nil
}

// entries are the lines of rules, with what was wrapped put together. An entry begins with
// the users it may be run as, in parentheses.
func entries(listed string) []string {
	var all []string
	for line := range strings.Lines(listed) {
		text := strings.TrimSpace(line)
		switch {
		case text == "":
		case strings.HasPrefix(text, "(") && strings.HasPrefix(line, "    ("):
			all = append(all, text)
		case len(all) > 0:
			all[len(all)-1] += " " + text
		}
	}
	return all
}

var (
	tag    = lazily(`^([A-Z_]+): *`)
	option = lazily(`^[A-Z_]+=\S+ +`)
	digest = lazily(`^sha(224|256|384|512):\S+,? +`)
)

// parseEntry reads an entry: `(root) NOPASSWD: /usr/bin/a, !/usr/bin/b x`. A tag also
// holds for the commands after it.
func parseEntry(entry string) []rule {
	users, commands, found := strings.Cut(strings.TrimPrefix(entry, "("), ")")
	if !found {
		return nil
	}
	asRoot, noPassword := includesRoot(users), false
	var rules []rule
	for _, text := range split(commands) {
		for {
			if m := tag().FindStringSubmatch(text); m != nil {
				switch m[1] {
				case "NOPASSWD":
					noPassword = true
				case "PASSWD":
					noPassword = false
				}
				text = text[len(m[0]):]
				continue
			}
			if m := option().FindString(text); m != "" {
				text = text[len(m):]
				continue
			}
			if m := digest().FindString(text); m != "" {
				text = text[len(m):]
				continue
			}
			break
		}
		c := rule{asRoot: asRoot, noPassword: noPassword}
		for strings.HasPrefix(text, "!") {
			c.refuses, text = !c.refuses, strings.TrimSpace(text[1:])
		}
		var some bool
		c.program, c.args, some = strings.Cut(text, " ")
		c.anyArgs = !some
		c.args = strings.TrimSpace(c.args)
		if c.program != "" {
			rules = append(rules, c)
		}
	}
	return rules
}

// split splits commands at commas that aren't escaped, and takes the escapes away that
// sudoers needs for its own punctuation.
func split(commands string) []string {
	var list []string
	var word strings.Builder
	end := func() {
		list = append(list, strings.TrimSpace(word.String()))
		word.Reset()
	}
	for i := 0; i < len(commands); i++ {
		switch c := commands[i]; {
		case c == '\\' && i+1 < len(commands) && strings.IndexByte(",:=", commands[i+1]) >= 0:
			i++
			word.WriteByte(commands[i])
		case c == '\\' && i+1 < len(commands):
			word.WriteString(commands[i : i+2])
			i++
		case c == ',':
			end()
		default:
			word.WriteByte(c)
		}
	}
	end()
	return list
}

// includesRoot says whether a list of users, as in `root`, `ALL : ALL` or `#0`, allows
// root. What is a group or an alias is not known to.
func includesRoot(users string) bool {
	users, _, _ = strings.Cut(users, ":")
	includes := false
	for _, user := range strings.Split(users, ",") {
		switch strings.TrimSpace(user) {
		case "ALL", "root", "#0":
			includes = true
		case "!root", "!#0", "!ALL":
			includes = false
		}
	}
	return includes
}

// lazily compiles a pattern when it is first used: every start of genv would pay for it
// otherwise.
func lazily(pattern string) func() *regexp.Regexp {
	return sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(pattern) })
}
