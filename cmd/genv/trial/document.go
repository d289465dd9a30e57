package trial

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/seed-3119e985/genv/cmd/genv/render"
	"github.com/seed-3119e985/genv/enforce"
	"github.com/seed-3119e985/genv/remote/recording"
	"github.com/seed-3119e985/genv/remote/recording/replay"
	"github.com/seed-3119e985/genv/snapshot"
	"github.com/seed-3119e985/genv/snapshot/text"
)

// Document is the JSON of `genv policy try`; docs/json.md describes it.
type Document struct {
	Schema string    `json:"schema"`
	Since  time.Time `json:"since"` // the first judgement
	Until  time.Time `json:"until"` // and the last one
	// Judgements is how many there were, Early how many of them between two cycles, and Different
	// how many were recorded with another result than this version of genv comes to.
	Judgements int  `json:"judgements"`
	Early      int  `json:"early"`
	Different  int  `json:"different"`
	DryRun     bool `json:"dry_run"` // the controller acted on nothing, at least at some time

	Policy   string   `json:"policy"`   // that is tried; empty for the defaults and flags alone
	Policies []string `json:"policies"` // that were in force

	Rows  []Row   `json:"rows"`
	Total Row     `json:"total"`
	Begin []Case  `json:"would_begin"` // cases that would have been found or acted on, and were not
	End   []Case  `json:"would_end"`   // and those that were, and would not have been
	Not   []Doubt `json:"unknown"`     // what can't be known
}

// Row is what happened to a user by a rule, and what would have.
type Row struct {
	User  snapshot.Username `json:"user,omitempty"`
	Rule  enforce.Rule      `json:"rule,omitempty"`
	Was   replay.Counts     `json:"was"`
	Would replay.Counts     `json:"would"`
}

// Case is a time in which a rule was broken, or would have been.
type Case = replay.Case

// Doubt is something that can't be known, and why.
type Doubt struct {
	What string `json:"what"`
	Text string `json:"text"`
}

const schema = "genv.policy.try/1"

func newDocument(r *request, result *replay.Result, summary *recording.Summary) *Document {
	d := &Document{
		Schema: schema, Since: result.From.Local(), Until: result.To.Local(), Judgements: result.Judgements, Early: result.Early,
		Different: result.Different, DryRun: result.DryRun > 0, Policy: r.policy.Path, Policies: []string{}, Rows: []Row{}, Begin: []Case{}, End: []Case{},
		Total: Row{Was: result.WasTotal, Would: result.WouldTotal},
	}
	for _, p := range result.Policies {
		d.Policies = append(d.Policies, policyName(p))
	}
	wanted := func(user snapshot.Username) bool { return len(r.users) == 0 || slices.Contains(r.users, user) }
	keys := make(map[replay.Key]bool)
	for _, counts := range []map[replay.Key]replay.Counts{result.Was, result.Would} {
		for k := range counts {
			keys[k] = wanted(k.User)
		}
	}
	for k, shown := range keys {
		if shown {
			d.Rows = append(d.Rows, Row{k.User, k.Rule, result.Was[k], result.Would[k]})
		}
	}
	slices.SortFunc(d.Rows, func(a, b Row) int {
		return cmp.Or(strings.Compare(string(a.User), string(b.User)), strings.Compare(string(a.Rule), string(b.Rule)))
	})
	if len(r.users) > 0 {
		d.Total = sum(d.Rows)
	}
	for _, list := range []struct {
		from []replay.Case
		to   *[]Case
	}{{result.Begin, &d.Begin}, {result.End, &d.End}} {
		for _, c := range list.from {
			if wanted(c.User) && len(*list.to) < r.cases {
				*list.to = append(*list.to, c)
			}
		}
	}
	d.Not = doubts(r, result, summary)
	return d
}

// sum adds up rows. A process or an attachment that is in several rows counts in each.
func sum(rows []Row) (total Row) {
	for _, row := range rows {
		for _, side := range []struct{ to, more *replay.Counts }{{&total.Was, &row.Was}, {&total.Would, &row.Would}} {
			side.to.Add(side.more)
		}
	}
	return total
}

func policyName(p *recording.Policy) string {
	name := p.Path
	if name == "" {
		name = "the defaults"
	}
	if p.Overridden() {
		name += " with flags"
	}
	return name
}

// doubts are what can't be known.
func doubts(r *request, result *replay.Result, summary *recording.Summary) []Doubt {
	list := []Doubt{}
	add := func(yes bool, what, format string, args ...any) {
		if yes {
			list = append(list, Doubt{what, fmt.Sprintf(format, args...)})
		}
	}
	add(result.Different > 0, "version", "%d of %d judgements come to another result in this version of genv than when they were recorded: the figures of what was are not exact. Use the version that recorded them.", result.Different, result.Judgements)
	add(!r.since.IsZero() && result.From.Sub(r.since) > longBegin, "begin", "nothing is recorded before %s. How long something had been idle or broken a rule is known as far as the controller remembered it then.", result.From.Local().Format(shortTime))
	addGaps(add, result, summary)
	for _, damage := range summary.Damage {
		add(true, "damage", "%s: %v. What follows in this file is not known.", damage.Path, damage.Err)
	}
	add(summary.Unknown > 0, "records", "%s of a later version of genv were left out.", render.Plural(summary.Unknown, "record"))
	addSilent(add, result)
	would, was := result.WouldTotal, result.WasTotal
	add(result.DryRun > 0, "dry-run", "the controller ran with --dry-run for %d of %d judgements: what was is what it would have done.", result.DryRun, result.Judgements)
	add(would.Terminated+would.Detached > 0, "would-follow", "what users would have done without %s. The recording still shows them: they are left out from then on, and count once.", lost(&would))
	add(was.Terminated+was.Detached > 0 && result.DryRun < result.Judgements, "did-follow", "what would have followed if %s had stayed: the recording doesn't show them any more.", lost(&was))
	overridden := slices.ContainsFunc(result.Policies, (*recording.Policy).Overridden)
	add(overridden, "flags", "the controller ran with flags that override its policy. The policy that is tried has only the flags that this command is given.")
	add(result.FairShare, "fair-share", "who had less than an equal share isn't recorded, since the policy in force had no fair-share, or another one: no user has a boost here.")
	add(result.Guard, "guard", "the kernel guard, which denies what these rules find, is not tried.")
	return list
}

// lost are the processes that ended, and the attachments that went.
func lost(c *replay.Counts) string {
	var list []string
	if c.Terminated > 0 {
		list = append(list, processes(c.Terminated))
	}
	if c.Detached > 0 {
		list = append(list, render.Plural(c.Detached, "attachment"))
	}
	return strings.Join(list, " and ")
}

// addGaps says of which times nothing is recorded. Gaps at the end of a file are known from the next
// one, but for the last.
func addGaps(add func(bool, string, string, ...any), result *replay.Result, summary *recording.Summary) {
	gaps := slices.Clone(result.Gaps)
	for _, g := range summary.Gaps {
		if !g.Since.Before(result.To) {
			gaps = append(gaps, g)
		}
	}
	missing := time.Duration(0)
	for _, g := range gaps {
		missing += max(0, g.Until.Sub(g.Since))
	}
	add(len(gaps) > 0, "gaps", "nothing is recorded of %s, in %s: %s.", text.ShortDuration(missing), render.Plural(len(gaps), "gap"), gapList(gaps))
}

// longBegin is how much later than asked for a recording may begin without a word.
const longBegin = 5 * time.Minute

// addSilent says which hosts did not answer for how long.
func addSilent(add func(bool, string, string, ...any), result *replay.Result) {
	var names []string
	total := time.Duration(0)
	for name, d := range result.Silent {
		names, total = append(names, string(name)), total+d
	}
	slices.Sort(names)
	add(len(names) > 0, "hosts", "%s did not answer for some time, %s together: %s.", render.Plural(len(names), "host"), text.ShortDuration(total), render.Hosts(names))
}

// gapList names the first gaps.
func gapList(gaps []recording.Gap) string {
	const most = 3
	var list []string
	for i, g := range gaps {
		if i == most {
			list = append(list, fmt.Sprintf("and %d more", len(gaps)-most))
			break
		}
		list = append(list, fmt.Sprintf("%s to %s (%s)", g.Since.Local().Format(shortTime), g.Until.Local().Format(shortTime), text.PrintableLines(g.Because)))
	}
	return strings.Join(list, ", ")
}
