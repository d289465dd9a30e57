package order

import (
	"cmp"
	"fmt"
	"slices"
	"time"
)

// Options are how an order is carried out. agent.ExecuteRequest contains them; a host with 1.4.3 knows none.
type Options struct {
	GraceMS int64 `json:"grace_ms"` // for processes to end after SIGTERM; 0 for the host's own
	Kill    bool  `json:"kill"`     // SIGKILL follows then
	// Unprotected are names of daemons that may be ended although the host protects them.
	Unprotected []string `json:"unprotected,omitempty"`
}

const (
	// DefaultGrace is the grace of an order without one.
	DefaultGrace = 10 * time.Second
	// MaxGrace is the longest grace that a host accepts.
	MaxGrace = time.Hour
	// KillWait is how long a process may take to end after SIGKILL: freeing a large GPU's memory takes seconds.
	KillWait = 10 * time.Second
)

// Step is a signal, and how long a process then has to end.
type Step struct {
	Signal string // its name
	Verb   string // of the line that says that it was sent
	Wait   time.Duration
	Ended  OutcomeStatus // if it ends
	Advice string        // if it doesn't, and no step follows
}

// Steps are what a process gets, one after the other, until it ends.
func (o *Options) Steps() []Step {
	grace := cmp.Or(time.Duration(o.GraceMS)*time.Millisecond, DefaultGrace)
	ignores := "it ignores that or takes longer: kill: true in the policy ends it"
	steps := []Step{{"SIGTERM", "Terminating", grace, StatusTerminated, ignores}}
	if o.Kill {
		hangs := "it hangs in the kernel: look at `dmesg` for a sick GPU or file server"
		steps = append(steps, Step{"SIGKILL", "Killing", KillWait, StatusKilled, hangs})
	}
	return steps
}

// Lasts is the longest time that a host waits for processes to end.
func (o *Options) Lasts() (d time.Duration) {
	for _, step := range o.Steps() {
		d += step.Wait
	}
	return d
}

// Check refuses options that a host doesn't accept.
func (o *Options) Check() error {
	if o.GraceMS < 0 || o.GraceMS > MaxGrace.Milliseconds() {
		return fmt.Errorf("a grace of %d ms: it is 0 to %s", o.GraceMS, MaxGrace)
	}
	return nil
}

// OutcomeStatus is the outcome of one item of an Order. The texts appear in JSON.
type OutcomeStatus string

const (
	StatusTerminated  OutcomeStatus = "terminated"   // the process ended after SIGTERM
	StatusKilled      OutcomeStatus = "killed"       // it ended after SIGKILL only
	StatusSignalled   OutcomeStatus = "signalled"    // SIGTERM was sent, and the end was not waited for
	StatusSurvived    OutcomeStatus = "survived"     // it still ran when the wait was over
	StatusGone        OutcomeStatus = "gone"         // it had ended before anything was done
	StatusChanged     OutcomeStatus = "changed"      // PID, devices or environment are not as judged; nothing was sent
	StatusRefused     OutcomeStatus = "refused"      // a process that is never signalled (see the reason)
	StatusDetached    OutcomeStatus = "detached"     // the attachment was removed
	StatusNotAttached OutcomeStatus = "not-attached" // there was no such attachment any more
	StatusFailed      OutcomeStatus = "failed"       // it was tried and the system refused (see the reason)
	// StatusUnknown: the connection was lost while the order ran. It isn't sent again; the next cycle judges a fresh
	// snapshot.
	StatusUnknown OutcomeStatus = "unknown"
)

// OfProcesses are what may come of a termination, those of Ended first.
func OfProcesses() []OutcomeStatus {
	return []OutcomeStatus{
		StatusTerminated, StatusKilled, StatusSignalled, StatusSurvived, StatusGone, StatusChanged, StatusRefused,
		StatusFailed, StatusUnknown,
	}
}

// Ended reports whether a process counts as ended by the order.
func (s OutcomeStatus) Ended() bool {
	return s == StatusTerminated || s == StatusKilled || s == StatusSignalled
}

// Known reports whether it is one of the above.
func (s OutcomeStatus) Known() bool { return s.IsOver() || slices.Contains(OfProcesses(), s) }

// IsOver reports whether certainly nothing is left of the item.
func (s OutcomeStatus) IsOver() bool {
	return s.Ended() && s != StatusSignalled || s == StatusGone || s == StatusDetached || s == StatusNotAttached
}
