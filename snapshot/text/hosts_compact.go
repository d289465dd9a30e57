package text

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// CompactHosts writes names as few patterns ("gpu-[03,07-12].lab"), the inverse of HostPattern.Expand, in the order of
// their first names. What is not a host name stays as it is.
func CompactHosts(names []string) []string {
	var order []string
	shapes := make(map[string][]compactName)
	seen := make(map[string]bool, len(names))
	for i, name := range names {
		if seen[name] {
			continue
		}
		seen[name] = true
		n, shape := splitNumbers(name, i)
		if shapes[shape] == nil {
			order = append(order, shape)
		}
		shapes[shape] = append(shapes[shape], n)
	}
	var found []compactName
	for _, shape := range order {
		found = append(found, compact(shapes[shape])...)
	}
	slices.SortStableFunc(found, func(a, b compactName) int { return a.first - b.first })
	patterns := make([]string, len(found))
	for i, n := range found {
		patterns[i] = n.String()
	}
	return patterns
}

// compactName is a name, or a pattern: the even parts are texts, each odd one is a number or ranges in brackets.
type compactName struct {
	parts []string
	first int // where the first of its names is in the list
}

func (n compactName) String() string { return strings.Join(n.parts, "") }

// splitNumbers splits a name at its numbers. The shape is equal for names that differ in numbers only. A name that
// can't be a part of a pattern has no numbers.
func splitNumbers(name string, at int) (n compactName, shape string) {
	whole := compactName{[]string{name}, at}
	if _, err := ParseHosts(name); err != nil || strings.ContainsAny(name, "[:") {
		return whole, name
	}
	n.first = at
	begin, texts := 0, []string(nil)
	for _, at := range numbers().FindAllStringIndex(name, -1) {
		if at[1]-at[0] <= maxDigits {
			n.parts = append(n.parts, name[begin:at[0]], name[at[0]:at[1]])
			texts, begin = append(texts, name[begin:at[0]]), at[1]
		}
	}
	n.parts, texts = append(n.parts, name[begin:]), append(texts, name[begin:])
	return n, strings.Join(texts, "[]")
}

var numbers = Pattern(`[0-9]+`)

// compact merges names of the same shape, one number after the other, from the last.
func compact(names []compactName) []compactName {
	for at := len(names[0].parts) - 2; at > 0; at -= 2 {
		names = mergeAt(names, at)
	}
	return names
}

// mergeAt merges the names that are equal except for one number.
func mergeAt(names []compactName, at int) []compactName {
	var merged []compactName
	var found [][]string
	index := make(map[string]int)
	for _, n := range names {
		key := strings.Join(n.parts[:at], "\x00") + "\x00\x00" + strings.Join(n.parts[at+1:], "\x00")
		i, known := index[key]
		if !known {
			i = len(merged)
			index[key] = i
			merged, found = append(merged, n), append(found, nil)
		}
		merged[i].first = min(merged[i].first, n.first)
		found[i] = append(found[i], n.parts[at])
	}
	for i := range merged {
		merged[i].parts = slices.Clone(merged[i].parts)
		merged[i].parts[at] = compactNumbers(found[i])
	}
	return merged
}

// compactNumbers writes numbers as "[03,07-12]", and a single one as it is.
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

// ShortHosts is CompactHosts in about so many characters, with the number of hosts that are left out. The names may be
// foreign text.
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
