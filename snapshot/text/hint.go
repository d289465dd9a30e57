package text

import (
	"fmt"
	"strings"

	"github.com/xrash/smetrics"
)

// Hint suggests the known word nearest to a misspelt one: did you mean "enforce"? If
// none is near, it is otherwise.
func Hint(word string, known []string, otherwise string) string {
	if near := Nearest(word, known); near != "" {
		return fmt.Sprintf("did you mean %q?", near)
	}
	return otherwise
}

// Nearest is the known word nearest to a misspelt one, or "" if none is near. If several
// are equally near, it is the one that begins like the word for longest, then the first.
func Nearest(word string, known []string) string {
	limit := 1
	if len(word) > 3 {
		limit = max(2, len(word)/3) // 2 is two letters swapped
	}
	best, found := limit+1, ""
	for _, k := range known {
		if len(k)-len(word) > best || len(word)-len(k) > best {
			continue // the distance is at least the difference in length
		}
		d := smetrics.WagnerFischer(strings.ToLower(word), strings.ToLower(k), 1, 1, 1)
		if d < best || d == best && d <= limit && commonPrefix(word, k) > commonPrefix(word, found) {
			best, found = d, k
		}
	}
	return found
}

// commonPrefix is the number of bytes with which both words begin, in any case.
func commonPrefix(a, b string) int {
	a, b = strings.ToLower(a), strings.ToLower(b)
	n := 0
	for n < min(len(a), len(b)) && a[n] == b[n] {
		n++
	}
	return n
}
