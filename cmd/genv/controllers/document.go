package controllers

import (
	"time"

	"github.com/seed-3119e985/genv/remote"
)

// Schema names the document of `genv remote controllers --format json`; docs/json.md
// describes it.
const Schema = "genv.remote.controllers/1"

// Document is what the command found out.
type Document struct {
	Schema string    `json:"schema"`
	Time   time.Time `json:"time"`
	// Election is nil without --leader.
	Election *Election `json:"election"`
	// Etcd is how etcd is; nil without --leader.
	Etcd *Etcd `json:"etcd"`
	// Hosts are empty if none were asked.
	Hosts  []Host           `json:"hosts"`
	Failed []remote.Failure `json:"failed"`
	// Problems are what is not in order, in words.
	Problems []Problem `json:"problems"`
}

// Election is what etcd says.
type Election struct {
	Key     string `json:"key"`
	Cluster string `json:"cluster"` // the id of etcd's cluster
	cluster uint64
	Leads   bool   `json:"leads"` // whether a controller leads
	Epoch   uint64 `json:"epoch,omitempty"`
	// Since is since when the leader leads; by its own clock.
	Since       time.Time    `json:"since,omitzero"`
	Controllers []Controller `json:"controllers"`
	// Memory is when the leader wrote its memory to etcd last, by its own clock; zero if it
	// never did.
	Memory time.Time `json:"memory,omitzero"`
}

// Role is what a controller is.
type Role string

// The roles.
const (
	leading Role = "leading"
	standby Role = "standby"
	lost    Role = "lost"
)

// Controller is one that takes part in an election.
type Controller struct {
	ID      string `json:"id"`
	Name    string `json:"name"`
	Role    Role   `json:"role"`
	Host    string `json:"host,omitempty"` // on which it runs
	PID     int    `json:"pid,omitempty"`
	Version string `json:"version,omitempty"`
	// Since is since when it runs, and Cycle when its last cycle ended; both by its clock.
	Since    time.Time `json:"since,omitzero"`
	Cycle    time.Time `json:"cycle,omitzero"`
	Interval float64   `json:"interval_seconds,omitempty"`
	Hosts    int       `json:"hosts,omitempty"`
	// Answered is how many of the Hosts answered in the last cycle; nil if that isn't known.
	Answered *int `json:"answered,omitempty"`
	// HostsDigest and Policy are the same for controllers with the same hosts, and with equal
	// policies.
	HostsDigest string `json:"hosts_digest,omitempty"`
	Policy      string `json:"policy,omitempty"`
}

// State is what a host says about the controllers that may act on it.
type State string

// The states.
const (
	acts     State = "acts"
	released State = "released" // it acted last, and has ended
	none     State = "none"     // none has acted yet
	cannot   State = "cannot"   // the genv of the host can't refuse any
	unknown  State = "unknown"  // the host lets none act
)

// Host is what a host says.
type Host struct {
	Host  string `json:"host"`
	State State  `json:"state"`
	// Controller is the name of the controller that acts, or acted last.
	Controller string    `json:"controller,omitempty"`
	Source     string    `json:"source,omitempty"`
	Kind       string    `json:"kind,omitempty"` // of the source: etcd or folder
	Epoch      uint64    `json:"epoch,omitempty"`
	Since      time.Time `json:"since,omitzero"` // by the host's clock
	// Agrees says that the host has the same source as the leader, or as most other hosts.
	Agrees bool   `json:"agrees"`
	Error  string `json:"error,omitempty"` // why the state is unknown
}

// Problem is something that is not in order.
type Problem struct {
	Text string `json:"text"`
	Next string `json:"next_step"`
}
