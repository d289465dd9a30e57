package user

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/urfave/cli/v2"

	"github.com/seed-3119e985/genv/cmd/genv/command"
	"github.com/seed-3119e985/genv/cmd/genv/render"
	"github.com/seed-3119e985/genv/snapshot/gpus"
	"github.com/seed-3119e985/genv/snapshot/state"
	"github.com/seed-3119e985/genv/snapshot/state/change"
	"github.com/seed-3119e985/genv/snapshot/state/service"
	"github.com/seed-3119e985/genv/snapshot/text"
)

// waitOptions is what --wait says.
type waitOptions struct {
	wait   bool
	within time.Duration // 0 for ever
}

func (o *waitOptions) waitFlag() cli.Flag {
	return command.Bool(&o.wait, "wait", fmt.Sprintf("without enough free GPUs, wait for your turn: by default as "+
		"long as it takes; with exit code %d after TIME, such as --wait=2h", command.ExitLate)).OrTime(&o.within)
}

// errLate ends a wait of which the time is over.
var errLate = errors.New("the time of --wait is over")

// change makes a change that attaches a number of GPUs, with --wait when it is its turn.
func (o *waitOptions) change(c *cli.Context, p *program, who *hostUser, asked change.Change) (change.Result, error) {
	if !o.wait {
		result, err := who.Change(c.Context, asked)
		var unavailable *state.UnavailableError
		if errors.As(err, &unavailable) && unavailable.TooFew && len(unavailable.Conflicts) > 0 && !c.IsSet("config") {
			err = fmt.Errorf("%w; with --wait it waits for your turn", err)
		}
		return result, err
	}
	if c.IsSet("over-subscribe") || c.IsSet("mig") || c.IsSet("no-attach") || c.IsSet("config") {
		return change.Result{}, command.WrongFlag("wait", " waits for free GPUs: leave out --over-subscribe, --mig, "+
			"--no-attach and --config")
	}
	ctx := c.Context
	if o.within > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeoutCause(ctx, o.within, errLate)
		defer cancel()
	}
	served, _ := who.Served() // the error comes with the change
	t := newWaitTeller(p)
	defer t.line.End()
	result, err := who.ChangeInTurn(ctx, asked, func(place *service.Place) {
		switch {
		case place != nil:
			t.tell(PlaceText(place))
		case served:
			t.tell("the service of this host is away: your place is kept for a while")
		default:
			t.tell("too few GPUs are free. This host keeps no queue, so no place is kept: it is looked at every 10 s")
		}
	})
	if errors.Is(err, errLate) {
		t.line.End()
		within := text.FormatDuration(o.within)
		fmt.Fprintf(p.Err, "genv: it was not your turn within %s: nothing was attached\n", within)
		err = &command.ExitError{Code: command.ExitLate}
	}
	return result, err
}

// waitTeller says what a person waits for: in one line on a terminal, and elsewhere in a line a minute.
type waitTeller struct {
	p        *program
	line     *render.Progress
	terminal bool
	said     time.Time
}

func newWaitTeller(p *program) *waitTeller {
	return &waitTeller{p: p, line: render.NewProgress(p.Err), terminal: render.IsTerminal(p.Err)}
}

func (t *waitTeller) tell(line string) {
	if line = "Waiting: " + line; t.terminal {
		t.line.Note(text.Cut(line, max(render.Width(t.p.Err)-1, 20)))
	} else if now := t.p.Now(); now.Sub(t.said) >= time.Minute {
		t.said = now
		t.p.Warn(line)
	}
}

// PlaceText says where a wait is in the queue, as in "3rd of 4 people: bob waits for 2 GPUs since 12 minutes; 2 of your
// own are before this one".
func PlaceText(p *service.Place) string {
	s := "you come first"
	if p.People > 1 {
		s = fmt.Sprintf("%s of %d people", ordinal(p.Number), p.People)
	}
	if w := p.First; w != nil {
		s += fmt.Sprintf(": %s waits for %s since %s", gpus.ShownUser(gpus.UserName(w.Username, &w.UID)),
			text.Plural(w.GPUs, "GPU"), waitedFor(w.Seconds))
	} else {
		s += fmt.Sprintf(": %d of %s free", min(p.Free, p.GPUs), text.Plural(p.GPUs, "GPU"))
	}
	if p.Own > 0 {
		s += fmt.Sprintf("; %d of your own %s before this one", p.Own, strings.Fields("is are")[min(p.Own, 2)-1])
	}
	if n := p.Possible; n != nil && *n > 0 {
		s += fmt.Sprintf("; you could have %d here: ask for as many", *n)
	} else if n != nil {
		s += "; others need not give back any for it"
	}
	if p.Barred {
		s += "; you can't have so many now, by a cap, a reservation or failed GPUs, and others pass"
	}
	return s
}

func ordinal(n int) string {
	suffix := "th"
	if tens := n / 10 % 10; tens != 1 && n%10 >= 1 && n%10 <= 3 {
		suffix = []string{"st", "nd", "rd"}[n%10-1]
	}
	return fmt.Sprint(n, suffix)
}

// waitedFor is a time in its largest unit.
func waitedFor(seconds int64) string {
	for _, unit := range []struct {
		name    string
		seconds int64
	}{{"day", 24 * 3600}, {"hour", 3600}} {
		if seconds >= 2*unit.seconds {
			return text.Plural(int(seconds/unit.seconds), unit.name)
		}
	}
	return text.Plural(int(seconds/60), "minute")
}
