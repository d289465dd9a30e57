package doctor

import (
	"errors"
	"path"
	"regexp"
	"strings"
)

// sudoRules are what sudo allows a user, by what `sudo -l` prints. As in sudoers(5) the last rule that
// matches decides, arguments are compared as one text with wildcards, and a rule without arguments
// allows any. What isn't understood is never taken for allowed.
type sudoRules struct {
	requireTTY bool // sudo runs only from a terminal
	rules      []sudoRule
}

// sudoRule is one command, or `ALL`.
type sudoRule struct {
	asRoot     bool // it may be run as root
	noPassword bool
	refuses    bool   // it begins with an exclamation mark
	program    string // a path, which may have wildcards; ALL
	args       string // as written
	anyArgs    bool   // none are written: any are allowed
}

// errSudoFormat says that the text is not what sudo prints.
var errSudoFormat = errors.New("the output of `sudo -l` is not in the expected format")

const (
	maxSudoRules   = 10_000
	maxSudoPattern = 4096 // bytes
)

// parseSudoers reads the output of `sudo -l` in the C locale. sudo may have wrapped its lines.
func parseSudoers(output string) (r sudoRules, err error) {
	defaults, listed, found := strings.Cut(output, "may run the following commands on ")
	if !found {
		return r, errSudoFormat
	}
	for _, word := range strings.FieldsFunc(defaults, func(c rune) bool { return c == ',' || c == ' ' || c == '\n' }) {
		if word == "requiretty" || word == "!requiretty" {
			r.requireTTY = word == "requiretty"
		}
	}
	_, listed, _ = strings.Cut(listed, "\n")
	for _, entry := range sudoEntries(listed) {
		r.rules = append(r.rules, parseSudoEntry(entry)...)
		if len(r.rules) > maxSudoRules {
			return sudoRules{}, errSudoFormat
		}
	}
	return r, nil
}

// sudoEntries are the lines of rules, with what was wrapped put together. An entry begins with
// the users it may be run as, in parentheses.
func sudoEntries(listed string) (all []string) {
	for line := range strings.Lines(listed) {
		text := strings.TrimSpace(line)
		switch {
		case text == "":
		case strings.HasPrefix(line, "    ("):
			all = append(all, text)
		case len(all) > 0:
			all[len(all)-1] += " " + text
		}
	}
	return all
}

// sudoPrefix is what precedes a command: a tag, an option or a digest.
var sudoPrefix = lazily(`^(?:([A-Z_]+): *|[A-Z_]+=\S+ +|sha(?:224|256|384|512):\S+,? +)`)

// parseSudoEntry reads an entry: `(root) NOPASSWD: /usr/bin/a, !/usr/bin/b x`. A tag also
// holds for the commands after it.
func parseSudoEntry(entry string) (rules []sudoRule) {
	users, commands, found := strings.Cut(strings.TrimPrefix(entry, "("), ")")
	if !found {
		return nil
	}
	asRoot, noPassword := includesRoot(users), false
	for _, text := range splitSudo(commands) {
		for m := sudoPrefix().FindStringSubmatch(text); m != nil; m = sudoPrefix().FindStringSubmatch(text) {
			noPassword = m[1] == "NOPASSWD" || noPassword && m[1] != "PASSWD"
			text = text[len(m[0]):]
		}
		c := sudoRule{asRoot: asRoot, noPassword: noPassword}
		for strings.HasPrefix(text, "!") {
			c.refuses, text = !c.refuses, strings.TrimSpace(text[1:])
		}
		var some bool
		c.program, c.args, some = strings.Cut(text, " ")
		c.args, c.anyArgs = strings.TrimSpace(c.args), !some
		if c.program != "" {
			rules = append(rules, c)
		}
	}
	return rules
}

// splitSudo splits commands at commas that aren't escaped, and takes the escapes away that
// sudoers needs for its own punctuation.
func splitSudo(commands string) (list []string) {
	var word strings.Builder
	for i := 0; i < len(commands); i++ {
		switch c := commands[i]; {
		case c == '\\' && i+1 < len(commands):
			if i++; !strings.ContainsRune(",:=", rune(commands[i])) {
				word.WriteByte(c)
			}
			word.WriteByte(commands[i])
		case c == ',':
			list = append(list, strings.TrimSpace(word.String()))
			word.Reset()
		default:
			word.WriteByte(c)
		}
	}
	return append(list, strings.TrimSpace(word.String()))
}

// includesRoot says whether a list of users, as in `root`, `ALL : ALL` or `#0`, allows
// root. What is a group or an alias is not known to.
func includesRoot(users string) (includes bool) {
	users, _, _ = strings.Cut(users, ":")
	for user := range strings.SplitSeq(users, ",") {
		switch strings.TrimSpace(user) {
		case "ALL", "root", "#0":
			includes = true
		case "!root", "!#0", "!ALL":
			includes = false
		}
	}
	return includes
}

// sudoAnswer says whether a command is allowed as root.
type sudoAnswer int

const (
	sudoRefused      sudoAnswer = iota // or not understood
	sudoWithPassword                   // allowed, with a password
	sudoAllowed                        // allowed, without one
)

// allows says whether a program may be run as root with these arguments.
func (r *sudoRules) allows(program string, args ...string) sudoAnswer {
	for i := len(r.rules) - 1; i >= 0; i-- {
		c := &r.rules[i]
		switch {
		case !c.asRoot || !c.matches(program, strings.Join(args, " ")):
		case c.refuses:
			return sudoRefused
		case c.noPassword:
			return sudoAllowed
		default:
			return sudoWithPassword
		}
	}
	return sudoRefused
}

func (c *sudoRule) matches(program, args string) bool {
	return c.program == "ALL" && c.anyArgs ||
		c.matchesProgram(program) && (c.anyArgs || args == "" && c.args == `""` || c.like(c.args, args, true))
}

// matchesProgram compares the paths: a folder with a slash at its end means the programs in it.
func (c *sudoRule) matchesProgram(program string) bool {
	if strings.HasSuffix(c.program, "/") {
		return path.Dir(program)+"/" == c.program
	}
	return c.like(c.program, program, false)
}

// like compares a text with a regular expression or a pattern of fnmatch(3), a wildcard of which may match
// a slash in arguments alone. It takes one that can't be read, since sudo's expressions are POSIX's, for one
// that refuses the command.
func (c *sudoRule) like(pattern, text string, slashes bool) bool {
	if len(pattern) > maxSudoPattern {
		return c.refuses
	}
	if strings.HasPrefix(pattern, "^") && strings.HasSuffix(pattern, "$") {
		e, err := regexp.Compile(`(?s)\A(?:` + pattern + `)\z`)
		return err == nil && e.MatchString(text) || err != nil && c.refuses
	}
	if slashes { // which no wildcard of package path matches
		pattern, text = strings.ReplaceAll(pattern, "/", "\x00"), strings.ReplaceAll(text, "/", "\x00")
	}
	matches, err := path.Match(strings.ReplaceAll(pattern, "[!", "[^"), text)
	return matches || err != nil && c.refuses
}
