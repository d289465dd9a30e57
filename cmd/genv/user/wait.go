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
	"github.com/seed-3119e985/genv/snapshot"
	"github.com/seed-3119e985/genv/snapshot/gpus"
	"github.com/seed-3119e985/genv/snapshot/state"
	"github.com/seed-3119e985/genv/snapshot/state/change"
	"github.com/seed-3119e985/genv/snapshot/state/service"
	"github.com/seed-3119e985/genv/snapshot/text"
)

type waitOptions struct {
	wait   bool
	within time.Duration // 0 for unlimited
}

func (o *waitOptions) waitFlag() cli.Flag {
	return command.Bool(&o.wait, "wait", fmt.Sprintf("without enough free GPUs, wait for your turn: by default as "+
		"long as it takes; with exit code %d after TIME, such as --wait=2h", command.ExitLate)).OrTime(&o.within)
}

var errLate = errors.New("the time of --wait is over")

// change makes a change that may attach GPUs, with --wait in turn. It returns others' use of the GPUs: before the
// change, which prefers free ones, or after a wait.
func (o *waitOptions) change(
	c *cli.Context, p *userCommands, who *hostUser, asked change.Change,
) (result change.Result, others inUse, err error) {
	if o.wait {
		if result, err = o.inTurn(c, p, who, asked); err != nil {
			return result, others, err
		}
		return result, p.inUseByOthers(c.Context, who, result.EID, who.uid), nil
	}
	eid, uid, known := snapshot.EnvID(""), who.uid, (*state.Availability)(nil)
	switch a, e := asked.Attach, asked.Enter; {
	case a != nil:
		eid, known = a.EID, &a.Availability
	case e.Attach && e.Config.GPUs != nil:
		eid, known = e.EID, &e.Availability
		if uid, err = who.Machine.Proc.UID(e.PID); err != nil {
			return result, others, err
		}
	}
	if known != nil {
		others = p.inUseByOthers(c.Context, who, eid, uid)
		*known = state.Availability{States: gpus.InUse(others.gpus), Last: gpus.Last(others.gpus), Only: others.only}
	}
	result, err = who.Change(c.Context, asked)
	waitable := command.Takes(c.Command, "wait") && !c.IsSet("config") && !c.IsSet("mig")
	switch e, ok := errors.AsType[*state.UnavailableError](err); {
	case ok && len(e.Conflicts) > 0 && waitable:
		err = fmt.Errorf("%w; with --wait it waits for your turn", err)
	case ok && asked.Attach != nil:
		for _, index := range asked.Attach.Indices {
			if g := others.gpu(index); g.Problem != "" {
				err = fmt.Errorf("%w; GPU %d: %s", err, index, text.Printable(string(g.Problem)))
			}
		}
	}
	return result, others, err
}

func (o *waitOptions) inTurn(c *cli.Context, p *userCommands, w *hostUser, asked change.Change) (change.Result, error) {
	if c.IsSet("over-subscribe") || c.IsSet("mig") || c.IsSet("no-attach") || c.IsSet("config") {
		return change.Result{}, command.WrongFlag("wait", ": leave out --over-subscribe, --mig, --no-attach, --config")
	}
	ctx := c.Context
	if o.within > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeoutCause(ctx, o.within, errLate)
		defer cancel()
	}
	served, _ := w.Served() // on error the change fails, too
	progress := render.NewProgress(p.Err)
	defer progress.End()
	result, err := w.ChangeInTurn(ctx, asked, func(place *service.QueuePlace) {
		line := "Waiting: too few GPUs are free. This host keeps no queue, and is looked at every 10 s"
		switch {
		case place != nil:
			line = "Waiting: " + PlaceText(place)
		case served:
			line = "Waiting: the service of this host is away: your place is kept for a while"
		}
		progress.Waiting(line, p.Now())
	})
	if errors.Is(err, errLate) {
		progress.End()
		p.Warn("genv: it was not your turn within " + text.FormatDuration(o.within) + ": nothing was attached")
		err = &command.ExitError{Code: command.ExitLate}
	}
	return result, err
}

// PlaceText is a place in the queue: "3rd of 4 people: bob waits for 2 GPUs since 12 minutes; 2 of your own are before
// this one".
func PlaceText(p *service.QueuePlace) string {
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
		s += "; nobody is asked to give GPUs back for it"
	}
	if n := len(p.Freed); n > 0 {
		form := []string{"; GPU %s is taken back for you", "; GPUs %s are taken back for you"}[min(n, 2)-1]
		s += fmt.Sprintf(form, text.JoinIndices(p.Freed))
	}
	if p.Barred != "" {
		s += "; others may pass you, since " + p.Barred
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

func waitedFor(seconds int64) string {
	switch {
	case seconds < 60:
		return "just now"
	case seconds >= 2*24*3600:
		return text.Plural(int(seconds/(24*3600)), "day")
	case seconds >= 2*3600:
		return text.Plural(int(seconds/3600), "hour")
	}
	return text.Plural(int(seconds/60), "minute")
}
