package hostpattern

import "strings"

// Split cuts a list at its commas, but not at those within brackets, and trims
// the spaces around each item.
func Split(list string) []string {
	var items []string
	depth, start := 0, 0
	for i, r := range list {
		switch {
		case r == '[':
			depth++
		case r == ']':
			depth = max(0, depth-1)
		case r == ',' && depth == 0:
			items = append(items, strings.TrimSpace(list[start:i]))
			start = i + 1
		}
	}
	return append(items, strings.TrimSpace(list[start:]))
}
