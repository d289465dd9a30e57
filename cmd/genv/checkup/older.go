package checkup

import (
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"

	remotedoctor "github.com/seed-3119e985/genv/remote/doctor"
	"github.com/seed-3119e985/genv/snapshot/doctor"
	"github.com/seed-3119e985/genv/snapshot/text"
)

// writeOlder says on how many hosts an upgrade of this machine has left an older genv, which works: a genv with a
// problem has its own next step.
func writeOlder(b *strings.Builder, d *remotedoctor.FleetReport) {
	var versions []string
	count := 0
	for i := range d.Hosts {
		h := &d.Hosts[i]
		if version := text.OneLine(h.Genv.Version); h.Check(doctor.Genv).Status == doctor.OK &&
			older(version, d.Genv.Version) {
			versions, count = append(versions, version), count+1
		}
	}
	if count == 0 {
		return
	}
	slices.Sort(versions)
	fmt.Fprintf(b, "genv on %s is older (%s, here %s): genv remote install -H @all --upgrade\n",
		text.Plural(count, "host"), strings.Join(slices.Compact(versions), ", "), d.Genv.Version)
}

// older compares the numbers that versions begin with. Without them it is not known, and false.
func older(version, than string) bool {
	a, b := numbers(version), numbers(than)
	return a != nil && b != nil && slices.Compare(a, b) < 0
}

func numbers(version string) (found []int) {
	for number := range strings.SplitSeq(regexp.MustCompile(`^v?(\d{1,9}(\.\d{1,9})+)?`).FindString(version), ".") {
		n, err := strconv.Atoi(strings.TrimPrefix(number, "v"))
		if err != nil {
			return nil
		}
		found = append(found, n)
	}
	return found
}
