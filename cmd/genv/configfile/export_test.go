package configfile

import "github.com/urfave/cli/v2"

// Merge is for the tests of another package.
var Merge = merge

// Sections are the values by section.
func (f *File) Sections() map[string][]Value { return f.sections }

// Refusal is why a flag can't be a key.
func Refusal(commands []*cli.Command, flag string) string { return keysOf(commands).refusal(flag) }
