package enforcement

import (
	"slices"
	"strings"
)

// The escape sequences of colours.
const (
	red    = "\x1b[31m"
	green  = "\x1b[32m"
	yellow = "\x1b[33m"
	plain  = "\x1b[0m"
)

// coloured is a line in the colour of what it says, which its words say too: what is done
// and who is lost in red, what may be done in yellow, and what is well again in green.
func coloured(line, says string, colourful bool) string {
	if !colourful {
		return line
	}
	begins := func(words ...string) bool {
		return slices.ContainsFunc(words, func(word string) bool { return strings.HasPrefix(says, word) })
	}
	switch {
	case begins("Terminating ", "Killing ", "Detaching ", "Lost: ", "Still lost: ", "Unsteady ", "Report failed: ", "Safety limit "):
		return red + line + plain
	case begins("Process ", "Environment ", "User ", "Would "):
		return yellow + line + plain
	case begins("Back ", "Steady ", "Over"), strings.Contains(line, "] Over"):
		return green + line + plain
	}
	return line
}
