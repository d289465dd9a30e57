package render

import (
	"fmt"
	"time"
)

// Age is a duration in its largest unit. Clocks of hosts differ, so that
// something may seem to be of the future: that is "now" as well.
func Age(d time.Duration) string {
	units := []struct {
		name string
		size time.Duration
	}{{"day", 24 * time.Hour}, {"hour", time.Hour}, {"minute", time.Minute}, {"second", time.Second}}
	for _, u := range units {
		if n := int(d / u.size); n > 0 {
			return fmt.Sprintf("%s ago", Plural(n, u.name))
		}
	}
	return "now"
}

// Plural is a number with its noun, such as "1 host" or "2 hosts".
func Plural(n int, noun string) string {
	if n == 1 {
		return "1 " + noun
	}
	return fmt.Sprintf("%d %ss", n, noun)
}
