// Package controllers is about which controllers enforce a host: what a controller says
// about itself, and the list of them that root's genv keeps on the host. So people who
// enforce the same hosts with two controllers by mistake get to know of each other.
//
//	r := controllers.NewRegistry(controllers.Options{Path: controllers.Path(os.Getenv), …})
//	others, err := r.Contact(self, fenced) // with each request of a controller
//	defer r.Leave()
//
// Nothing is prevented: which controller may act is not decided here, and what a list says
// is as true as what the controllers said. Only root can write the list.
package controllers

import (
	"errors"
	"fmt"
	"time"

	"github.com/seed-3119e985/genv/remote/agent/fence"
	"github.com/seed-3119e985/genv/snapshot/text"
)

// Controller is what a controller says about itself.
type Controller struct {
	// ID is the same after a restart, if the controller keeps its state in a folder.
	ID       string `json:"id"`
	Hostname string `json:"hostname"` // of the machine on which it runs
	Account  string `json:"account"`  // as which it runs
	// Person is the user who started it, if that is another one, as with sudo.
	Person  string    `json:"person,omitempty"`
	PID     int       `json:"pid"`
	Started time.Time `json:"started"`
	// Policy is the same for equal policies, and empty if it isn't known.
	Policy     string `json:"policy"`
	IntervalMS int64  `json:"interval_ms"` // between two cycles; 0 for a single one
}

// Seen is a controller in the list of a host.
type Seen struct {
	Controller
	// Login is the account of the host through which it came, as sudo says; empty for
	// root's own login.
	Login string    `json:"login,omitempty"`
	Since time.Time `json:"since"` // when it came
}

// Answer is what a host says about the other controllers that enforce it.
type Answer struct {
	Others []Seen `json:"controllers,omitempty"`
	// Unknown is why the host can't say.
	Unknown string `json:"controllers_unknown,omitempty"`
	// Noted is the controller that the host lets act, for one that only looks; nil for none.
	Noted *fence.Note `json:"noted,omitempty"`
	// NotedUnknown is why the host can't say, and then it lets no controller act. It is empty
	// also on a host that lets each controller act: see agent.Capabilities.
	NotedUnknown string `json:"noted_unknown,omitempty"`
}

// Note keeps which controller a host lets act, or why that isn't known.
func (a *Answer) Note(n *fence.Note, err error) {
	if err != nil {
		a.NotedUnknown = err.Error()
	} else if n != nil {
		noted := *n
		noted.Former = nil
		a.Noted = &noted
	}
}

const (
	maxID       = 64  // bytes
	maxName     = 256 // bytes
	maxInterval = 24 * time.Hour
	// MaxOthers is how many other controllers a host names.
	MaxOthers = 15
)

// Interval is the time between two cycles.
func (c *Controller) Interval() time.Duration {
	return min(time.Duration(max(c.IntervalMS, 0))*time.Millisecond, maxInterval)
}

// Same reports whether both are one controller, which may have been restarted.
func (c *Controller) Same(other *Controller) bool {
	return c.ID == other.ID && c.Hostname == other.Hostname
}

// Check returns an error if it is incomplete or longer than any controller's.
func (c *Controller) Check() error {
	switch {
	case c.ID == "":
		return errors.New("a controller without an id")
	case len(c.ID) > maxID || len(c.Policy) > maxID || len(c.Hostname)+len(c.Account)+len(c.Person) > maxName:
		return errors.New("a controller says more about itself than it may")
	case c.IntervalMS < 0 || c.IntervalMS > maxInterval.Milliseconds():
		return fmt.Errorf("a controller with an interval of %d ms", c.IntervalMS)
	}
	return nil
}

// String names it for people, on one line.
func (c *Controller) String() string {
	who := text.Shown(c.Account)
	if c.Person != "" {
		who = fmt.Sprintf("%s as %s", text.Shown(c.Person), who)
	}
	if c.Hostname != "" {
		who += " on " + text.Shown(c.Hostname)
	}
	if c.PID > 0 {
		who += fmt.Sprintf(", process %d", c.PID)
	}
	if !c.Started.IsZero() {
		who += ", since " + c.Started.Local().Format(time.DateTime)
	}
	return who
}

// Bounded returns the answer of a host with what can be true of it.
func (a Answer) Bounded() Answer {
	bounded := Answer{Unknown: text.Cut(a.Unknown, maxName), NotedUnknown: text.Cut(a.NotedUnknown, maxName)}
	if a.Noted != nil && a.Noted.Check() == nil {
		bounded.Note(a.Noted, nil)
	}
	for i := range a.Others[:min(len(a.Others), MaxOthers)] {
		if s := a.Others[i]; s.Check() == nil && len(s.Login) <= maxName {
			bounded.Others = append(bounded.Others, s)
		}
	}
	return bounded
}
