package policy

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"iter"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/seed-3119e985/genv/enforce"
	"github.com/seed-3119e985/genv/enforce/order"
	"github.com/seed-3119e985/genv/snapshot"
)

// File is a policy file. In the zero File all rules are off; Default applies
// without a file.
type File struct {
	// Accounts are the other names of users; Settings and Exempt take any.
	Accounts Aliases
	// Defaults apply where no override does. Settings that the file leaves out
	// have the values of Default.
	Defaults  Settings
	Overrides []Override
	// Groups are the users of each group, with nested groups resolved.
	Groups map[string][]string
	// Schedules are the times that overrides may name.
	Schedules map[string]*Schedule
	// CapList are the caps of the list, in the order of the file. Reservations are who may reserve what.
	CapList      []*Cap
	Reservations []Reservation
	// UnixGroups is what is known now of who is in which Unix group; nil if nothing is.
	UnixGroups func() func(user snapshot.Username, group string) enforce.Membership
	// HostGroups are the hosts of the groups of the inventory.
	HostGroups map[string][]string
	// Interval is the time between two looks at a host; 0 for a single cycle.
	Interval   time.Duration
	Exemptions Exemptions
	// Unprotected are daemons that may be ended although they are among
	// safety.Protected.
	Unprotected []string
	Limits      Limits
	PauseCaps   Value[bool] // while hosts are unreachable; otherwise their GPUs don't count
	// TellUsers says whether users get messages on their terminals.
	TellUsers Value[bool]
	Contact   string // whom to ask about the policy, as users read it; empty for none
	Hooks     []Hook
	Mail      *Mail // nil for none

	// Ignored are the keys of the file that do nothing any more.
	Ignored []Ignored

	// Flags take precedence over the file, and UserFlags over Flags. Their Sources
	// name the flag. Nothing here is changed once Settings was called.
	Flags     Settings
	UserFlags map[snapshot.Username]Settings

	text string // of the file, for Digest

	mu       sync.RWMutex
	settings map[string]*enforce.Settings // what Settings returned, by what it follows from
}

// Limits are the safety limits on the actions of a cycle. A limit that is not On
// does not apply.
type Limits struct {
	Fleet, PerUser, PerHost Limit
	// Throttle is on for "over-limit: throttle", and off for "over-limit: hold".
	Throttle Value[bool]
}

// Limit is how much may be done in a cycle in the fleet, to a user on a host, or on a host.
type Limit struct {
	MaxTerminations Value[int] // processes
	MaxDetachments  Value[int] // devices
}

// each lists the limits by their keys in the file, in the order of Explain.
func (l *Limits) each() iter.Seq2[string, *Value[int]] {
	return func(yield func(string, *Value[int]) bool) {
		of := []*Limit{&l.Fleet, &l.PerUser, &l.PerHost}
		for i, suffix := range limitSuffixes {
			if !yield("max-terminations"+suffix, &of[i].MaxTerminations) ||
				!yield("max-detachments"+suffix, &of[i].MaxDetachments) {
				return
			}
		}
	}
}

// limitSuffixes are the ends of the keys of limits: in the fleet, for a user, on a host.
var limitSuffixes = []string{"", "-per-user", "-per-host"}

// maxLimit is the most that a limit can be.
const maxLimit = 1_000_000

// Event is what a hook is called for.
type Event string

// The events.
const (
	OnWarn Event = "warn" // findings are new, and are not acted on yet
	OnAct  Event = "act"  // orders were carried out, or their outcome is unknown
	OnHold Event = "hold" // safety limits held actions against users or on hosts back
)

// Hook is a program or a URL that gets events, as JSON.
type Hook struct {
	// Command is a program with its arguments, which reads the JSON on stdin.
	// Webhook is a URL to which it is posted. One of the two is set.
	Command []string
	Webhook string
	Slack   bool // the URL is an incoming webhook of Slack or Mattermost, and gets a message for people
	On      []Event
	Timeout time.Duration // for each try
	Retries int           // after the first try
	From    Source
}

// Default is the policy without a file and without flags: that of 1.4.3, with a
// safety limit that is not reached in normal use.
func Default() *File {
	builtIn := Source{By: "built in"}
	f := &File{
		Defaults: Settings{Settings: enforce.Settings{
			EnvDevices: true, EnvMemory: true, Grace: order.DefaultGrace, MaxAge: enforce.DefaultMaxAge,
		}},
		Limits: Limits{
			Fleet:    Limit{MaxTerminations: Value[int]{On: true, Value: 1000}},
			Throttle: Value[bool]{From: builtIn},
		},
		PauseCaps: Value[bool]{From: builtIn},
		TellUsers: Value[bool]{On: true, From: builtIn},
	}
	for _, key := range enforce.Keys() {
		f.Defaults.Set(key.Key, builtIn)
	}
	for _, limit := range f.Limits.each() {
		limit.From = builtIn
	}
	return f
}

// Digest is the same for controllers with the same file and the same flags.
func (f *File) Digest() string {
	var b strings.Builder
	b.WriteString(f.text)
	write := func(whose string, s *Settings) {
		for _, key := range keys() {
			if s.has(key.Key) {
				fmt.Fprintf(&b, "\n%s%s=%s", whose, key.Key, key.Text(&s.Settings))
			}
		}
	}
	write("", &f.Flags)
	for _, user := range slices.Sorted(maps.Keys(f.UserFlags)) {
		own := f.UserFlags[user]
		write(string(user)+" ", &own)
	}
	sum := sha256.Sum256([]byte(b.String()))
	return hex.EncodeToString(sum[:16])
}
