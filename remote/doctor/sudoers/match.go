package sudoers

import (
	"path"
	"regexp"
	"strings"
)

// Answer says whether a command is allowed.
type Answer int

// The answers.
const (
	Refused      Answer = iota // or not understood
	WithPassword               // allowed as root, with a password
	Allowed                    // allowed as root, without a password
)

// Allows says whether a program may be run as root with these arguments. The last rule
// that matches decides.
func (r Rules) Allows(program string, args ...string) Answer {
	for i := len(r.rules) - 1; i >= 0; i-- {
		c := &r.rules[i]
		switch {
		case !c.asRoot || !c.matches(program, strings.Join(args, " ")):
		case c.refuses:
			return Refused
		case c.noPassword:
			return Allowed
		default:
			return WithPassword
		}
	}
	return Refused
}

func (c *rule) matches(program, args string) bool {
	if c.program == "ALL" && c.anyArgs {
		return true
	}
	return c.matchesProgram(program) && c.matchesArgs(args)
}

// matchesProgram compares the paths: a folder with a slash at its end means the
// programs in it, a wildcard doesn't match a slash.
func (c *rule) matchesProgram(program string) bool {
	switch {
	case strings.HasSuffix(c.program, "/"):
		return path.Dir(program)+"/" == c.program
	case strings.HasPrefix(c.program, "^") && strings.HasSuffix(c.program, "$"):
		return c.matchesExpression(c.program, program)
	}
	matched, err := path.Match(c.program, program)
	return matched || err != nil && c.refuses
}

// matchesArgs compares the arguments as one text; `""` means none.
func (c *rule) matchesArgs(args string) bool {
	switch {
	case c.anyArgs:
		return true
	case c.args == `""`:
		return args == ""
	case strings.HasPrefix(c.args, "^") && strings.HasSuffix(c.args, "$"):
		return c.matchesExpression(c.args, args)
	}
	return c.matchesExpression(expressionOf(c.args), args)
}

// maxPattern is how long a pattern may be, in bytes.
const maxPattern = 4096

// matchesExpression takes an expression that can't be read, since sudo's are POSIX's, for
// one that refuses the command.
func (c *rule) matchesExpression(expression, text string) bool {
	if len(expression) > maxPattern {
		return c.refuses
	}
	e, err := regexp.Compile(`(?s)\A(?:` + expression + `)\z`)
	if err != nil {
		return c.refuses
	}
	return e.MatchString(text)
}

// expressionOf is a pattern of fnmatch(3) as a regular expression. A wildcard in arguments
// matches any character, a space and a slash, too.
func expressionOf(pattern string) string {
	var b strings.Builder
	for i := 0; i < len(pattern); i++ {
		switch c := pattern[i]; c {
		case '*':
			b.WriteString(".*")
		case '?':
			b.WriteByte('.')
		case '[':
			end := strings.IndexByte(pattern[i+1:], ']')
			if end < 1 {
				b.WriteString(`\[`)
				continue
			}
			class := pattern[i+1 : i+1+end]
			if class[0] == '!' {
				class = "^" + class[1:]
			}
			b.WriteString("[" + strings.ReplaceAll(class, `\`, `\\`) + "]")
			i += end + 1
		case '\\':
			if i+1 < len(pattern) {
				i++
			}
			b.WriteString(regexp.QuoteMeta(pattern[i : i+1]))
		default:
			b.WriteString(regexp.QuoteMeta(pattern[i : i+1]))
		}
	}
	return b.String()
}
