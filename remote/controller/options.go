package controller

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/seed-3119e985/genv/enforce"
	"github.com/seed-3119e985/genv/remote"
)

// Options are what a controller is told: the hosts, the policy, and what it does with what it finds.
type Options struct {
	Survey
	// Policy is what is enforced; without one hosts are only looked at.
	Policy enforce.Policy
	// DryRun does everything except change hosts.
	DryRun bool
	Now    func() time.Time

	// Audit keeps the record; nil for none. What cannot be recorded is not done, unless ActUnrecorded.
	Audit         Recorder
	ActUnrecorded bool
	// Store, if set, keeps the memory: before orders are sent, when operators ask for something, and otherwise every
	// 10 seconds. OnSave, if set, is told in the background what came of each time.
	Store  Store
	OnSave func(error)
	// Companions plan what else is sent because of a cycle, such as messages to users.
	Companions []Companion
	// Sinks get the events of every cycle that counts, in their order.
	Sinks []Sink
}

// Controller enforces a policy on a fleet.
type Controller struct {
	Options
	Memory FleetMemory

	fleet      knownFleet
	round      Cycle // what was found and done since the last tick
	background background
}

// background is what goes on without the loop: deliveries, and saves of the memory.
type background struct {
	dispatcher
	unsaved bool      // the memory changed since it was saved
	saved   time.Time // last
	writer  stateWriter
}

// Configure has a controller go on with other options, and with the orders under way. It must not be
// called while a cycle runs.
func (c *Controller) Configure(options Options) {
	c.Options = options
	c.fleet = c.fleet.of(options.Hosts)
}

// policy is that of the file, with what operators asked for.
func (c *Controller) policy(now time.Time) enforce.Policy {
	return c.Memory.Operator.Policy(c.Policy, now)
}

// emit passes events on.
func (c *Controller) emit(cycle *Cycle, events []enforce.Event) {
	for _, sink := range c.Sinks {
		sink.Consume(cycle, events)
	}
}

// Encode returns the memory as it is now, with what companions remember.
func (c *Controller) Encode(now time.Time) (Saved, error) {
	memory, err := c.Memory.withCompanions(c.Companions)
	if err != nil {
		return Saved{}, fmt.Errorf("encode the memory: %w", err)
	}
	return memory.Encode(now)
}

// save saves the memory in the background, if it changed and was not saved a short while ago, or at once if it is
// urgent. What it returns is done when the memory is kept; nil if it is not saved.
func (c *Controller) save(ctx context.Context, urgent bool) *saving {
	since := c.Now().Sub(c.background.saved)
	if !c.background.unsaved || c.Store == nil || c.DryRun || remote.MayBegin(ctx) != nil ||
		!urgent && since >= 0 && since < saveEvery {
		return nil
	}
	store, told, ctx := c.Store, c.OnSave, context.WithoutCancel(ctx)
	saved, err := c.Encode(c.Now())
	c.background.saved, c.background.unsaved = c.Now(), false
	return c.background.writer.Write(func() error {
		if err == nil {
			err = store.Save(ctx, saved)
		}
		if told != nil {
			told(err)
		}
		return err
	})
}

// keep saves what operators asked for, and waits for it. The error says what a restart, or another leader, forgets.
func (c *Controller) keep(ctx context.Context) error {
	if c.Store == nil {
		return errNoStore
	}
	c.background.unsaved = true
	return c.save(ctx, true).wait()
}

// errNoStore is why a restart forgets what operators asked for.
var errNoStore = errors.New("not saved, so it is lost at a restart: this run keeps no memory; --state-dir DIR " +
	"gives it a folder")
