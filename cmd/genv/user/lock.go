package user

import (
	"context"
	"errors"
	"fmt"
	"os/exec"
	"time"

	"github.com/urfave/cli/v2"

	"github.com/seed-3119e985/genv/snapshot"
	"github.com/seed-3119e985/genv/snapshot/state/disk"
	"github.com/seed-3119e985/genv/snapshot/text"
)

func (p *program) lock(c *cli.Context) error {
	words := c.Args().Slice()
	switch {
	case len(words) == 1 && (words[0] == "--help" || words[0] == "-h"):
		return cli.ShowSubcommandHelp(c)
	case len(words) > 0 && words[0] == "--":
		words = words[1:]
	}
	who := p.person()
	devices, err := who.lockable(c.Context)
	if errors.Is(err, errNotActive) {
		fmt.Fprintln(p.Err, "genv: no device is locked: this shell is in no environment; run `genv activate` first")
	} else if err != nil {
		return err
	}
	if len(devices) > 0 {
		release, err := p.lockDevices(c.Context, who, devices)
		if err != nil {
			return err
		}
		defer release()
	}
	if len(words) == 0 { // to wait for the locks was all
		return nil
	}
	signals, stop := caughtSignals()
	defer stop()
	return supervise(&p.Program, "lock", exec.Command(words[0], words[1:]...), signals)
}

// silentWait is how long `genv lock` waits before it says so.
const silentWait = 2 * time.Second

// lockDevices waits as long as it takes, and prints which process has the lock.
func (p *program) lockDevices(ctx context.Context, who *person, devices []snapshot.DeviceIndex) (release func(), err error) {
	soon, cancel := context.WithTimeout(ctx, silentWait)
	defer cancel()
	release, err = who.Store.LockDevices(soon, devices)
	var busy *disk.BusyError
	if !errors.As(err, &busy) || ctx.Err() != nil {
		return release, err
	}
	holder := "a process that can't be seen from here"
	if busy.Holder != nil {
		holder = busy.Holder.String()
	}
	fmt.Fprintln(p.Err, text.PrintableLines(fmt.Sprintf("genv: waiting for %s, which is held by %s", busy.Path, holder)))
	release, err = who.Store.LockDevices(ctx, devices)
	if again := (*disk.BusyError)(nil); errors.As(err, &again) && again.Waited == 0 {
		return nil, busy // interrupted before the second attempt: the first one knows the holder
	}
	return release, err
}

// lockable are the devices of this shell's environment.
func (w *person) lockable(ctx context.Context) ([]snapshot.DeviceIndex, error) {
	eid, err := w.active(ctx)
	if err != nil {
		return nil, err
	}
	files, err := w.StateFiles(ctx)
	if err != nil {
		return nil, err
	}
	if _, err := w.mine(&files, eid); err != nil {
		return nil, err
	}
	return files.AttachedTo(eid), nil
}
