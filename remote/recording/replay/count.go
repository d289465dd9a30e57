package replay

import (
	"time"

	"github.com/seed-3119e985/genv/enforce"
	"github.com/seed-3119e985/genv/snapshot"
)

// Counts are what happened to a user by a rule.
type Counts struct {
	// Found is how often the rule was broken, without the breaks in which it was not, and Warned of
	// how many of these the user was told before anything was done.
	Found  int `json:"found"`
	Warned int `json:"warned"`
	// Held is how many safety limits held back at some time.
	Held int `json:"held"`
	// Terminated is how many processes were ended, and Detached how many attachments were removed:
	// each once, although it may be there in many cycles.
	Terminated int `json:"terminated"`
	Detached   int `json:"detached"`
}

// Key is what rows are about. A process that two rules end is in the rows of both.
type Key struct {
	User snapshot.Username
	Rule enforce.Rule
}

// Case is a time in which a rule was broken.
type Case struct {
	ID    string            `json:"id"`
	Rule  enforce.Rule      `json:"rule"`
	User  snapshot.Username `json:"user"`
	Host  snapshot.Hostname `json:"host,omitempty"`
	Since time.Time         `json:"since"` // when it was found first
	// Acted is when something was done about it; zero for never.
	Acted      time.Time `json:"acted,omitzero"`
	Terminated int       `json:"terminated"`
	Detached   int       `json:"detached"`
	Line       string    `json:"line"`

	warned, held, seen bool
}

// MaxCases is how many cases are kept by name. Others are only counted.
const MaxCases = 10_000

// tally counts what happens in a world.
type tally struct {
	rows      map[Key]*Counts
	total     Counts
	ids       map[string]bool // of all findings, with whether something was done about it
	present   map[string]*Case
	processes map[doneProcess]bool // that were ended, and by which row
	devices   map[doneDevice]bool
	cases     []*Case
	left      int // cases that are only counted
}

type doneProcess struct {
	key  Key
	host snapshot.Hostname
	id   processID
}

type doneDevice struct {
	key  Key
	host snapshot.Hostname
	id   attachmentID
}

func newTally() *tally {
	return &tally{
		rows: make(map[Key]*Counts), ids: make(map[string]bool), present: make(map[string]*Case),
		processes: make(map[doneProcess]bool), devices: make(map[doneDevice]bool),
	}
}

func (t *tally) row(k Key) *Counts {
	if t.rows[k] == nil {
		t.rows[k] = new(Counts)
	}
	return t.rows[k]
}

// add counts a judgement.
func (t *tally) add(j *judged) {
	if j.full {
		for _, c := range t.present {
			c.seen = j.silent[c.Host] // it may still be there
		}
	}
	for i := range j.plan.Findings {
		t.find(j, &j.plan.Findings[i])
	}
	for i := range j.events {
		if e := &j.events[i]; e.Kind == enforce.EventNotify && e.Finding != nil && e.Finding.Pending {
			t.warn(t.present[e.ID])
		}
	}
	for i := range j.plan.Reports {
		t.act(j, &j.plan.Reports[i])
	}
	if j.full {
		for id, c := range t.present {
			if !c.seen {
				delete(t.present, id)
			}
		}
	}
}

func (t *tally) find(j *judged, f *enforce.Finding) {
	c := t.present[f.ID]
	if c == nil {
		c = &Case{ID: f.ID, Rule: f.Rule, User: f.User, Host: f.Host, Since: j.time, Line: f.Line()}
		t.present[f.ID] = c
		if !t.ids[f.ID] {
			t.ids[f.ID] = false
		}
		t.row(Key{f.User, f.Rule}).Found++
		t.total.Found++
		if len(t.cases) < MaxCases {
			t.cases = append(t.cases, c)
		} else {
			t.left++
		}
	}
	c.seen = true
	if f.Held && !c.held {
		c.held = true
		t.row(c.key()).Held++
		t.total.Held++
	}
}

func (c *Case) key() Key { return Key{c.User, c.Rule} }

func (t *tally) warn(c *Case) {
	if c == nil || c.warned {
		return
	}
	c.warned = true
	t.row(c.key()).Warned++
	t.total.Warned++
}

// act counts what a report does, for each finding that is a reason for it.
func (t *tally) act(j *judged, r *enforce.HostReport) {
	for i := range r.Report.Terminate {
		p := &r.Report.Terminate[i]
		first := doneProcess{host: r.Host, id: idOf(&p.Process)}
		if !t.processes[first] {
			t.processes[first] = true
			t.total.Terminated++
		}
		for _, id := range p.Because {
			if c := t.present[id]; c != nil {
				done := doneProcess{c.key(), r.Host, first.id}
				if !t.processes[done] {
					t.processes[done] = true
					t.row(done.key).Terminated++
					c.Terminated++
				}
				t.acted(c, j.time)
			}
		}
	}
	for i := range r.Report.Detach {
		d := &r.Report.Detach[i]
		first := doneDevice{host: r.Host, id: detached(d, j.hosts(r.Host))}
		if !t.devices[first] {
			t.devices[first] = true
			t.total.Detached++
		}
		for _, id := range d.Because {
			if c := t.present[id]; c != nil {
				done := doneDevice{c.key(), r.Host, first.id}
				if !t.devices[done] {
					t.devices[done] = true
					t.row(done.key).Detached++
					c.Detached++
				}
				t.acted(c, j.time)
			}
		}
	}
}

func (t *tally) acted(c *Case, at time.Time) {
	t.ids[c.ID] = true
	if c.Acted.IsZero() {
		c.Acted = at
	}
}
