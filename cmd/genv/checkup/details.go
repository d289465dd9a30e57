package checkup

import (
	"slices"
	"strings"

	"github.com/seed-3119e985/genv/cmd/genv/render"
	"github.com/seed-3119e985/genv/remote"
	remotedoctor "github.com/seed-3119e985/genv/remote/doctor"
	"github.com/seed-3119e985/genv/snapshot/doctor"
	"github.com/seed-3119e985/genv/snapshot/text"
)

// writeDetails writes what failed and the warnings, each cause once with its hosts and the
// next step, and with All everything else.
func (s *Style) writeDetails(b *strings.Builder, d *remotedoctor.Document) {
	statuses := []doctor.Status{doctor.Failed, doctor.Warning}
	if s.All {
		statuses = []doctor.Status{doctor.OK, doctor.Skipped, doctor.Warning, doctor.Failed}
	}
	for _, status := range statuses {
		heading := s.coloured(words[status].heading, status) + "\n"
		for _, name := range doctor.Names() {
			found := checksOf(d, name, status)
			if len(found) == 0 {
				continue
			}
			b.WriteString(heading + "  " + string(name) + "\n")
			heading = ""
			s.writeCauses(b, found)
		}
	}
}

// checksOf are the results of a check with a status, as failures of hosts.
func checksOf(d *remotedoctor.Document, name doctor.Name, status doctor.Status) []remote.Failure {
	var found []remote.Failure
	for i := range d.Hosts {
		if c := d.Hosts[i].Check(name); c.Status == status {
			found = append(found, remote.Failure{Host: d.Hosts[i].Host, Class: remote.Class(c.Cause), Error: c.Detail, NextStep: c.NextStep})
		}
	}
	return found
}

func (s *Style) writeCauses(b *strings.Builder, found []remote.Failure) {
	for causes := remote.Causes(found); len(causes) > 0; {
		same := causes
		if other := slices.IndexFunc(causes, func(c remote.Cause) bool { return c.Class != causes[0].Class }); other > 0 {
			same = causes[:other]
		}
		chunk := len(same)
		if s.All { // all causes, else not more than are read
			chunk = 1
		}
		for some := range slices.Chunk(same, chunk) {
			for _, line := range render.CauseLines(some) {
				s.writeItem(b, "    ", line)
			}
		}
		for _, step := range render.NextSteps(same) {
			if step != "" {
				s.writeItem(b, "    next: ", step)
			}
		}
		causes = causes[len(same):]
	}
}

func (s *Style) writeItem(b *strings.Builder, before, item string) {
	b.WriteString(before)
	s.wrap(b, len(before), text.OneLine(item))
}
