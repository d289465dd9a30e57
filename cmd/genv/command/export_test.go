package command

import "github.com/urfave/cli/v2"

// ParseConfig is for the tests of another package.
var ParseConfig = parseConfig

// ConfigFor are the values for a command by flag.
func ConfigFor(cmd *cli.Command, files ...*configFile) map[string]configValue {
	return valuesFor(cmd, files)
}

// Sections are the values by section.
func (f *configFile) Sections() map[string][]configValue { return f.sections }

// Refusal is why a flag can't be a key.
func Refusal(commands []*cli.Command, flag string) string { return keysOf(commands).refusal(flag) }

// Grouped are the commands and flags that the groups of a page name.
func Grouped(page *HelpPage) (names []string) {
	for _, group := range page.groups {
		names = append(names, group[1:]...)
	}
	return names
}
