package service

import (
	"context"
	"time"

	"github.com/seed-3119e985/genv/snapshot"
)

// Allowance is what a controller or `genv enforce` tells a host about its policy.
type Allowance struct {
	// By is who enforces the policy, and Contact whom users ask about it; empty for none.
	By      string `json:"by,omitempty"`
	Contact string `json:"contact,omitempty"`
	// Page is where people see all hosts; empty if the controller doesn't know.
	Page string `json:"page,omitempty"`
	// Rules are the settings that hold here for people of whom People says no others.
	Rules []Rule `json:"rules,omitempty"`
	Caps  []Cap  `json:"caps,omitempty"`
	// People are those who have processes or environments here, or asked lately. Of others nothing is known.
	People map[snapshot.UID]Person `json:"people,omitempty"`
	// Offers are the GPUs that are freed for waits, by their ids.
	Offers map[string][]snapshot.DeviceIndex `json:"offers,omitempty"`
	// Possible is how many GPUs waits could have here, by their ids, where that is fewer than they wait for.
	Possible map[string]int `json:"possible,omitempty"`
	// Asked is the Number of the Asked that it answers.
	Asked uint64 `json:"asked,omitempty"`
	// Since is when these rules were told first, and Expired that too long ago: then nothing else is known. Root's
	// service says them.
	Since   time.Time `json:"since,omitzero"`
	Expired bool      `json:"expired,omitempty"`

	// OneHost says that the policy is about this host alone. Otherwise GPUs on all its hosts count together.
	OneHost bool  `json:"one_host,omitempty"`
	ForMS   int64 `json:"for_ms,omitempty"` // how long it holds unless it is renewed
	AgeMS   int64 `json:"age_ms,omitempty"` // how long ago root's service was told it
}

// CapsUnknown is what people are told while it is Unknown what holds for them.
const CapsUnknown = "your caps are unknown yet: try again in a minute"

// Unknown says of the answer to somebody that the controller hasn't said yet what holds for that person.
func (a *Allowance) Unknown() bool { return !a.Expired && len(a.People) == 0 }

// Rule is a setting of the policy, as `genv policy explain` prints it.
type Rule struct {
	Key   string `json:"key"`
	Value string `json:"value"`
}

// Cap is a cap that holds now for people of this host.
type Cap struct {
	ID   string `json:"id,omitempty"`   // its name or, without one, a digest of what it says
	Name string `json:"name,omitempty"` // as people are shown it
	Rule string `json:"rule,omitempty"` // the setting that it is, as max-devices-per-user; empty for one of the list
	// Model is that of its GPUs, as in A100; empty for all.
	Model string `json:"model,omitempty"`
	// Counts is what it counts: see text.CapAmount.
	Counts string `json:"counts"`
	// GPUs are those of this host that it is about.
	GPUs     []snapshot.DeviceIndex `json:"gpus,omitempty"`
	Together bool                   `json:"together,omitempty"` // people share it
	PerHost  bool                   `json:"per_host,omitempty"` // this host is counted by itself
	// While says that it holds only as far as others wait, so that nothing is refused for it.
	While bool      `json:"while,omitempty"`
	Until time.Time `json:"until,omitzero"` // when its schedule ends, or hours count from 0 again
}

// Person is what holds for one person.
type Person struct {
	Caps  []CapUse `json:"caps,omitempty"`
	Rules []Rule   `json:"rules,omitempty"` // nil for those of the Allowance
	// Booking is what the person may reserve; nil for nothing.
	Booking *Booking `json:"booking,omitempty"`
}

// CapUse is what a cap counts for a person, or for those who share it, and what it allows.
type CapUse struct {
	Cap       int                 `json:"cap"` // its place in Allowance.Caps
	Limit     int64               `json:"limit"`
	Here      int64               `json:"here,omitempty"`      // what counts on this host
	Elsewhere int64               `json:"elsewhere,omitempty"` // and on other ones
	Hosts     []snapshot.Hostname `json:"hosts,omitempty"`     // some of these
	SeenMS    int64               `json:"seen_ms,omitempty"`   // how long ago the oldest of these was seen
	// GPUs are those of this host that count.
	GPUs []snapshot.DeviceIndex `json:"gpus,omitempty"`
}

// Allow tells the host. Only root may.
func (c Client) Allow(ctx context.Context, a Allowance) error {
	_, err := c.ask(ctx, Request{Allow: &a})
	return err
}

// Allowance is what the host was told about the user who asks, and nothing about others; nil for nothing.
func (c Client) Allowance(ctx context.Context) (*Allowance, error) {
	answer, err := c.ask(ctx, Request{Allowance: true})
	return answer.Allowance, err
}
