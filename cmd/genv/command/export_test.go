package command

import "github.com/urfave/cli/v2"

// ParseConfig is for the tests of another package.
var ParseConfig = parseConfig

// ConfigFor are the values for a command by flag.
func ConfigFor(cmd *cli.Command, files ...configFile) map[string]configValue {
	return valuesFor(cmd, files)
}

// Sections are the values by section.
func (f configFile) Sections() map[string][]configValue { return f }

// Refusal is why a flag can't be a key.
func Refusal(commands []*cli.Command, flag string) string {
	return configKeysOf(commands).refusal(flag)
}

// Grouped are the commands and flags that the groups of a page name.
func Grouped(page *HelpPage) (names []string) {
	for _, group := range page.groups {
		names = append(names, group[1:]...)
	}
	return names
}

// Place is a place in a command line that is being written.
type Place struct{ *place }

// PlaceAfter is the place after some words.
func PlaceAfter(app *cli.App, words []string) Place { return Place{placeAfter(app, words)} }

// Path are the names of the commands.
func (p Place) Path() (names []string) {
	for _, cmd := range p.path {
		names = append(names, cmd.Name)
	}
	return names
}

// Program is which word begins the command line of another program; -1 for none.
func (p Place) Program() int { return p.program }

// Flag is all names of the flag that a word means; nil if there is none.
func (p Place) Flag(word string) []string {
	if flag := p.flagOf(word); flag != nil {
		return flag.names
	}
	return nil
}
