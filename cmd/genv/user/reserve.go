package user

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"os/user"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/urfave/cli/v2"

	"github.com/seed-3119e985/genv/cmd/genv/command"
	"github.com/seed-3119e985/genv/cmd/genv/render"
	"github.com/seed-3119e985/genv/snapshot"
	"github.com/seed-3119e985/genv/snapshot/gpus"
	"github.com/seed-3119e985/genv/snapshot/text"
)

type reserveOptions struct {
	gpus         int
	from, reason string
	length       time.Duration
	user, cancel string
	list         bool
	format       string
}

func (p *userCommands) reserveCommand() *cli.Command {
	o := &reserveOptions{from: "now"}
	return &cli.Command{
		Name: "reserve", Usage: "reserve GPUs of this machine for a time, or list or cancel reservations",
		Flags: []cli.Flag{
			command.Int(&o.gpus, "gpus", "reserve `N` GPUs").AtLeast(1),
			command.String(&o.from, "from", "the start, in your time zone: `TIME` such as \"tue 14:00\", 9:30, "+
				"\"tomorrow 14:00\", \"2026-12-01 14:00\" or now"),
			command.Duration(&o.length, "for", "for so long: `TIME` such as 8h or 2d"),
			command.String(&o.reason, "reason", "a `TEXT` that others are shown"),
			command.String(&o.user, "user", "for this `USER`; only root may"),
			command.Bool(&o.list, "list", "list the reservations of this machine"),
			command.String(&o.cancel, "cancel", "end the reservation with this `ID`"),
			command.FormatFlag(&o.format, "tui", "csv", "json"),
		},
		Action: p.outsideContainers(func(c *cli.Context) error { return p.reserve(c, o) }),
	}
}

func (p *userCommands) reserve(c *cli.Context, o *reserveOptions) error {
	booking := c.IsSet("gpus") || c.IsSet("from") || c.IsSet("for")
	who := p.person()
	owned, err := who.Store.OwnedDir()
	switch {
	case err != nil:
		return err
	case o.list && !booking && o.cancel == "":
		return p.listReservations(who, o)
	case owned == "":
		return errors.New("root's service keeps reservations, and is missing here: ask root for it (docs/host.md)")
	case o.cancel != "" && !booking && !o.list:
		ended, err := who.Service.CancelReservation(c.Context, o.cancel)
		return p.reportReservation(o, "Cancelled", ended, err)
	case o.gpus == 0 || o.length < time.Minute:
		return command.UsageError("write genv reserve --gpus 1 --for 8h, also with --from; or --list, or --cancel ID")
	}
	r, err := o.reservation(p.Now().Local(), who.uid)
	if err != nil {
		return err
	}
	made, freed, err := who.Service.Reserve(c.Context, r)
	err = p.reportReservation(o, "Reserved", made, err)
	if freed.After(made.From) {
		p.Warnf("Others use some of these GPUs: they are warned first, and lose them at about %s", p.when(freed))
	}
	return err
}

func (o *reserveOptions) reservation(now time.Time, uid snapshot.UID) (r snapshot.Reservation, err error) {
	r = snapshot.Reservation{UID: uid, GPUs: o.gpus, Reason: o.reason}
	if r.From, err = parseStart(o.from, now); err != nil {
		return r, command.WrongFlag("from", " %v", err)
	}
	r.From = r.From.Truncate(time.Minute) // as it is printed
	r.Until = r.From.Add(o.length.Truncate(time.Minute))
	if o.user != "" {
		number := o.user
		if account, err := user.Lookup(o.user); err == nil {
			number = account.Uid
		}
		other, err := strconv.ParseUint(number, 10, 32)
		switch r.UID = snapshot.UID(other); {
		case err != nil:
			return r, command.WrongFlag("user", " %q: there is no such user on this machine", o.user)
		case uid != 0 && r.UID != uid:
			return r, command.WrongFlag("user", ": only root reserves for others")
		}
	}
	r.ID = fmt.Sprintf("%08x", rand.Uint32())
	return r, nil
}

func (p *userCommands) reportReservation(o *reserveOptions, done string, r snapshot.Reservation, err error) error {
	if err != nil {
		return err
	}
	if o.format == "json" {
		return p.writeReservations([]snapshot.Reservation{r})
	}
	forWhom := ""
	if r.UID != ownUID() {
		forWhom = " for " + nameOfReserver(&r)
	}
	_, err = fmt.Fprintf(p.Out, "%s: %s%s from %s to %s (%s), as %s\n", done, text.Plural(r.GPUs, "GPU"), forWhom,
		p.when(r.From), p.when(r.Until), text.FormatDuration(r.Until.Sub(r.From)), r.ID)
	return err
}

func (p *userCommands) when(t time.Time) string { return snapshot.When(t.Local()) }

func nameOfReserver(r *snapshot.Reservation) string {
	return gpus.ShownUser(gpus.UserName(r.Username, &r.UID))
}

// ReservationsDocument is the JSON of `genv reserve`.
type ReservationsDocument struct {
	Schema       string                 `json:"schema"`
	Reservations []snapshot.Reservation `json:"reservations"`
}

func (p *userCommands) writeReservations(list []snapshot.Reservation) error {
	list = append([]snapshot.Reservation{}, list...)
	return render.WriteJSON(p.Out, ReservationsDocument{"genv.reservations/1", list})
}

// reservations are sorted by start; none if root doesn't own the state.
func (w *hostUser) reservations(now time.Time) ([]snapshot.Reservation, error) {
	list, err := w.Store.Reservations()
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	list = slices.DeleteFunc(list, func(r snapshot.Reservation) bool { return !r.Holds(now) })
	slices.SortFunc(list, func(a, b snapshot.Reservation) int {
		return cmp.Or(a.From.Compare(b.From), cmp.Compare(a.ID, b.ID))
	})
	return list, err
}

func (p *userCommands) listReservations(who *hostUser, o *reserveOptions) error {
	list, err := who.reservations(p.Now())
	switch {
	case err != nil:
		return err
	case o.format == "json":
		return p.writeReservations(list)
	case len(list) == 0 && o.format == "tui":
		fmt.Fprintln(p.Err, "Nothing is reserved on this machine.")
		return nil
	}
	out := render.Output{Format: o.format}
	table := out.Table("ID:8", "USER:12", "GPUS:4", "FROM:24", "TO:24", "REASON")
	for i := range list {
		r := &list[i]
		table.Add(r.ID, out.Name(nameOfReserver(r)), strconv.Itoa(r.GPUs), p.when(r.From), p.when(r.Until),
			out.Name(text.OneLine(r.Reason)))
	}
	return table.Write(p.Out)
}

func parseStart(written string, now time.Time) (time.Time, error) {
	words := strings.Fields(strings.ToLower(written))
	if len(words) == 1 && words[0] == "now" {
		return now, nil
	}
	wrong := fmt.Errorf("%q: write it as \"tue 14:00\", 9:30, \"tomorrow 14:00\", \"2026-12-01 14:00\" or now", written)
	if len(words) == 0 || len(words) > 2 {
		return time.Time{}, wrong
	}
	clock, err := time.Parse("15:04", words[len(words)-1])
	if err != nil {
		return time.Time{}, wrong
	}
	on := func(day time.Time) time.Time {
		return time.Date(day.Year(), day.Month(), day.Day(), clock.Hour(), clock.Minute(), 0, 0, now.Location())
	}
	if date, err := time.Parse(time.DateOnly, words[0]); err == nil {
		return on(date), nil
	}
	for days := range 8 {
		start := on(now.AddDate(0, 0, days))
		name := strings.ToLower(start.Weekday().String())
		switch named := words[0] == name || words[0] == name[:3]; {
		case words[0] == "today" && days == 0, words[0] == "tomorrow" && days == 1,
			(named || len(words) == 1) && start.After(now): // without a day: today, or else tomorrow
			return start, nil
		}
	}
	return time.Time{}, wrong
}

func (p *userCommands) tellReserved(ctx context.Context, who *hostUser, added []snapshot.DeviceIndex) {
	list, err := who.reservations(p.Now())
	if err != nil || len(list) == 0 {
		return
	}
	files, err := who.StateFiles(ctx)
	if err != nil {
		return
	}
	for i := range list {
		r := &list[i]
		over := min(files.Overbooked(list, r.From, nil), len(added))
		if r.UID == who.uid || r.Runs(p.Now()) || over == 0 {
			continue
		}
		format := []string{
			"%s is free until %s, then %s has reserved it", "%s are free until %s, then %s has reserved them",
		}[min(over, 2)-1]
		var models inUse
		p.Warnf(format, models.named(added[len(added)-over:]), p.when(r.From), nameOfReserver(r))
		return
	}
}
