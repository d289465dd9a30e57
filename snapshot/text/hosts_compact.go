package text

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// CompactHosts writes names as few patterns ("gpu-[03,07-12].lab"), the inverse of HostPattern.Expand, in the order of
// their first names. It doesn't change what is not a host name.
func CompactHosts(names []string) []string {
	var list [][]string // the parts of each name
	most, seen := 0, make(map[string]bool, len(names))
	for _, name := range names {
		if !seen[name] {
			parts := splitNumbers(name)
			list, most, seen[name] = append(list, parts), max(most, len(parts)), true
		}
	}
	for at := most - 2; at > 0; at -= 2 { // one number after the other, from the last
		list = mergeAt(list, at)
	}
	patterns := make([]string, len(list))
	for i, parts := range list {
		patterns[i] = strings.Join(parts, "")
	}
	return patterns
}

// splitNumbers splits a name at its numbers, the odd parts. A name that can't be in a pattern has none.
func splitNumbers(name string) (parts []string) {
	if _, err := ParseHosts(name); err != nil || strings.ContainsAny(name, "[:") {
		return []string{name}
	}
	begin := 0
	for _, at := range numbers().FindAllStringIndex(name, -1) {
		if at[1]-at[0] <= maxDigits {
			parts, begin = append(parts, name[begin:at[0]], name[at[0]:at[1]]), at[1]
		}
	}
	return append(parts, name[begin:])
}

var numbers = Pattern(`[0-9]+`)

func mergeAt(list [][]string, at int) (merged [][]string) {
	var found [][]string // the numbers of each merged name
	index := make(map[string]int)
	for _, parts := range list {
		if at >= len(parts) {
			merged, found = append(merged, parts), append(found, nil)
			continue
		}
		key := strings.Join(parts[:at], "\x00") + "\x00\x00" + strings.Join(parts[at+1:], "\x00")
		i, known := index[key]
		if !known {
			i = len(merged)
			index[key] = i
			merged, found = append(merged, parts), append(found, nil)
		}
		found[i] = append(found[i], parts[at])
	}
	for i, numbers := range found {
		if numbers != nil {
			merged[i][at] = compactNumbers(numbers)
		}
	}
	return merged
}

// compactNumbers writes numbers as "[03,07-12]", and a single one unchanged.
func compactNumbers(numbers []string) string {
	if len(numbers) == 1 {
		return numbers[0]
	}
	left := make(map[string]bool, len(numbers))
	for _, n := range numbers {
		left[n] = true
	}
	slices.SortFunc(numbers, func(a, b string) int {
		x, _ := strconv.Atoi(a) // they are numbers
		y, _ := strconv.Atoi(b)
		return cmp.Or(x-y, len(b)-len(a)) // a padded one begins a range that may continue with more digits
	})
	var ranges []string
	for _, low := range numbers {
		if !left[low] {
			continue
		}
		delete(left, low)
		value, _ := strconv.Atoi(low)
		high := low
		for {
			value++
			next := fmt.Sprintf("%0*d", len(low), value)
			if len(next) > maxDigits || !left[next] {
				break
			}
			delete(left, next)
			high = next
		}
		if high != low {
			low += "-" + high
		}
		ranges = append(ranges, low)
	}
	return "[" + strings.Join(ranges, ",") + "]"
}

// ShortHosts is CompactHosts cut to about most characters, with the number of other hosts. Names may be foreign.
func ShortHosts(names []string, most int) string {
	var b strings.Builder
	shown := 0
	for _, pattern := range CompactHosts(names) {
		count := 1
		if p, err := ParseHosts(pattern); err == nil {
			count = p.Count()
		}
		pattern = Printable(pattern)
		if shown > 0 && b.Len()+len(pattern) > most {
			fmt.Fprintf(&b, " and %d more", len(names)-shown)
			break
		}
		if shown > 0 {
			b.WriteString(", ")
		}
		if len(pattern) > 2*most { // one pattern of very many ranges
			pattern = Shorten(pattern, 2*most)
		}
		b.WriteString(pattern)
		shown += count
	}
	return b.String()
}
