package report

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/seed-3119e985/genv/cmd/genv/command"
	"github.com/seed-3119e985/genv/cmd/genv/render"
	"github.com/seed-3119e985/genv/enforce"
	"github.com/seed-3119e985/genv/remote/usage/store"
	"github.com/seed-3119e985/genv/snapshot"
	"github.com/seed-3119e985/genv/snapshot/gpus"
	"github.com/seed-3119e985/genv/snapshot/nss"
	"github.com/seed-3119e985/genv/snapshot/text"
)

// CapDocument is the JSON of `genv remote report --cap`.
type CapDocument struct {
	Schema   string     `json:"schema"`
	Cap      string     `json:"cap"`
	Since    time.Time  `json:"since"`                    // when the period began
	Until    time.Time  `json:"until"`                    // when it ends, and hours count from 0 again
	Counted  time.Time  `json:"counted_until,omitzero"`   // up to when it is kept
	Together bool       `json:"together,omitempty"`       // people share the limit
	Limit    *int64     `json:"limit_seconds,omitempty"`  // which they share
	Total    *int64     `json:"shared_seconds,omitempty"` // what they have had together
	Rows     []CapUsage `json:"rows"`                     // the most first
}

// CapUsage is a person's usage.
type CapUsage struct {
	User    snapshot.Username `json:"user"`
	Seconds int64             `json:"seconds"`
	Limit   *int64            `json:"limit_seconds,omitempty"` // missing for a shared one, and without a cap
}

// capReport prints the running period of a cap of GPU hours, as controllers last saved it.
func (p *options) capReport(ctx context.Context) error {
	file, err := policyFile(p.policy)
	if err != nil {
		return err
	}
	table, err := p.openToRead(ctx, store.HoursName, "no GPU hours of caps were counted in %s: `genv remote enforce` "+
		"does it while it runs with such a cap")
	if err != nil {
		return err
	}
	defer table.Close()
	hours, until, err := table.Hours(ctx)
	if err != nil {
		return fmt.Errorf("the GPU hours of caps: %w", err)
	}
	counted := hours[p.cap]
	unix := nss.NewGroups(p.Now)
	unix.Wait = getentTimeout
	file.AskUnix(unix.Member)
	at := p.Now()
	if counted.Period.After(at) {
		at = counted.Period // a period never goes back
	}
	var names []string
	for _, c := range file.Caps(at) {
		switch {
		case c.Kind != enforce.CapHours:
		case c.ID == p.cap:
			d := capDocument(c, counted)
			if until > 0 {
				d.Counted = time.Unix(until, 0).UTC()
			}
			return p.writeCap(d)
		default:
			names = append(names, c.ID)
		}
	}
	return command.WrongFlag("cap", ": the policy has no cap of GPU hours %q; %s", text.Printable(p.cap),
		text.Hint(p.cap, names, "name it with `name:`"))
}

func capDocument(c *enforce.Cap, counted enforce.Hours) *CapDocument {
	d := &CapDocument{
		Schema: "genv.remote.report.cap/1", Cap: c.ID, Since: c.Period, Until: c.PeriodEnd, Together: c.Together,
		Rows: []CapUsage{},
	}
	if counted.Period.Before(c.Period) {
		counted.Seconds = nil // of a period that is over
	}
	if c.Together {
		limit, _ := c.Limit("")
		d.Limit, d.Total = &limit.Value, new(int64)
	}
	for _, user := range slices.Sorted(maps.Keys(counted.Seconds)) {
		row := CapUsage{User: user, Seconds: int64(counted.Seconds[user])}
		member := c.Member(user)
		switch limit, about := c.Limit(user); {
		case c.Together && member == enforce.Member:
			*d.Total += row.Seconds
		case !c.Together && about && member != enforce.NotMember:
			row.Limit = &limit.Value
		}
		d.Rows = append(d.Rows, row)
	}
	slices.SortStableFunc(d.Rows, func(a, b CapUsage) int { return cmp.Compare(b.Seconds, a.Seconds) })
	return d
}

func (p *options) writeCap(d *CapDocument) error {
	t, amount, until := p.output.Table("USER:16", "HOURS:8", "LIMIT:8", "UNTIL"), capHours, d.Until.Format(shortTime)
	switch p.output.Format {
	case "json":
		return render.WriteJSON(p.Out, d)
	case "csv": // as in JSON, under the same names
		t = p.output.Table("user", "seconds", "limit_seconds", "until")
		amount, until = ifKnown, d.Until.Format(time.RFC3339)
	}
	for i := range d.Rows {
		r := &d.Rows[i]
		t.Add(gpus.ShownUser(r.User), amount(&r.Seconds), amount(cmp.Or(r.Limit, d.Limit)), until)
	}
	if t.Len() == 0 {
		fmt.Fprintf(p.Err, "No GPU hours of %s are counted since %s.\n", d.Cap, d.Since.Format(shortTime))
	}
	if t.Len() > 0 || p.output.Format == "csv" {
		if err := t.Write(p.Out); err != nil {
			return err
		}
	}
	if p.Now().Sub(d.Counted) > 5*time.Minute {
		fmt.Fprintln(p.Err, "No controller is known to have counted here in the last 5 minutes.")
	}
	if d.Together {
		fmt.Fprintf(p.Err, "Together: %s of %s GPU hours until %s.\n", capHours(d.Total), capHours(d.Limit), until)
	}
	return nil
}

// capHours are hours for people, rounded to half a minute.
func capHours(seconds *int64) string {
	if seconds == nil {
		return "none"
	}
	return fmt.Sprintf("%.2f", float64(*seconds)/3600)
}
