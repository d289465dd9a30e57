package policy

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/seed-3119e985/genv/enforce"
	"github.com/seed-3119e985/genv/enforce/order"
	"github.com/seed-3119e985/genv/enforce/safety"
	"github.com/seed-3119e985/genv/snapshot"
	"github.com/seed-3119e985/genv/snapshot/strictyaml"
)

// File is a policy file. In the zero File all rules are off; Default applies without a file.
type File struct {
	// Accounts are the other names of users; Settings and Exempt accept any.
	Accounts Aliases
	// Defaults apply without an override. They include the values of Default.
	Defaults  Settings
	overrides []Override
	Groups    map[string][]string  // the users of each group, with nested groups resolved
	Schedules map[string]*Schedule // that overrides may name

	CapList      []*Cap // in the order of the file
	reservations []reservation
	// UnixGroups is the known membership in Unix groups; nil if nothing is known.
	UnixGroups func(user snapshot.Username, group string) enforce.Membership
	HostGroups map[string][]string // of the inventory
	exemptions exemptions
	OfFleet    enforce.Fleet     // NotifyUsers is that of terminals alone
	fleetFrom  map[string]Source // of settings of OfFleet, by their keys
	Hooks      []Hook
	Mail       *Mail // nil for none

	Ignored    []Warning   // the keys of the file that do nothing any more
	References []Reference // in the order of the file

	// Flags take precedence over the file, and UserFlags over Flags. Nothing here changes after a call of Settings.
	Flags     Settings
	UserFlags map[snapshot.Username]Settings

	text string // of the file, for Digest

	mu       sync.RWMutex
	settings map[string]*enforce.Settings // what Settings returned, by what it follows from
}

// limitSettings are the keys of `limits:`, fleetSettings those at the top of a file.
var (
	limitSettings = []strictyaml.Setting[enforce.Fleet]{
		newLimit("max-terminations", func(f *enforce.Fleet) *int { return &f.Limits.Fleet.Terminations }),
		newLimit("max-detachments", func(f *enforce.Fleet) *int { return &f.Limits.Fleet.Detachments }),
		newLimit("max-terminations-per-user", func(f *enforce.Fleet) *int { return &f.Limits.PerUser.Terminations }),
		newLimit("max-detachments-per-user", func(f *enforce.Fleet) *int { return &f.Limits.PerUser.Detachments }),
		newLimit("max-terminations-per-host", func(f *enforce.Fleet) *int { return &f.Limits.PerHost.Terminations }),
		newLimit("max-detachments-per-host", func(f *enforce.Fleet) *int { return &f.Limits.PerHost.Detachments }),
		strictyaml.NewChoice("over-limit", "throttle", "hold",
			func(f *enforce.Fleet) *bool { return &f.Limits.Throttle }),
	}
	fleetSettings = []strictyaml.Setting[enforce.Fleet]{
		strictyaml.NewChoice("unreachable", "hold", "ignore", func(f *enforce.Fleet) *bool { return &f.PauseCaps }),
		strictyaml.NewSwitch("tell-users", func(f *enforce.Fleet) *bool { return &f.NotifyUsers }),
	}
)

const maxLimit = 1_000_000

func newLimit(key string, at func(*enforce.Fleet) *int) strictyaml.Setting[enforce.Fleet] {
	read := func(n *strictyaml.Node) int { return n.Int(0, maxLimit) }
	s := strictyaml.NewSetting(key, at, "", read, strconv.Itoa)
	s.Read = func(f *enforce.Fleet, n *strictyaml.Node) { *at(f) = read(n) }
	return s
}

// Default is the policy without a file and flags: 1.4.3's, with a safety limit far above normal use.
func Default() *File {
	builtIn := Source{By: "built in"}
	f := &File{
		Defaults: Settings{Settings: enforce.Settings{
			EnvDevices: true, EnvMemory: true, Grace: order.DefaultGrace, MaxAge: enforce.DefaultMaxAge,
		}},
		OfFleet:   enforce.Fleet{Limits: safety.Limits{Fleet: safety.Limit{Terminations: 1000}}, NotifyUsers: true},
		fleetFrom: make(map[string]Source),
	}
	for _, key := range enforce.Keys() {
		f.Defaults.Set(key.Key, builtIn)
	}
	for _, key := range slices.Concat(limitSettings, fleetSettings) {
		f.fleetFrom[key.Key] = builtIn
	}
	return f
}

// Digest is the same for controllers with the same file and flags.
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
