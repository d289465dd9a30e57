package text

import (
	"regexp"
	"sync"
)

// Pattern compiles a regular expression when it is first used: every start of genv would pay for it otherwise.
func Pattern(expression string) func() *regexp.Regexp {
	return sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(expression) })
}
