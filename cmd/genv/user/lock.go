package user

import (
	"context"
	"errors"
	"fmt"
	"os/exec"
	"path/filepath"
	"slices"
	"time"

	"github.com/urfave/cli/v2"

	"github.com/seed-3119e985/genv/snapshot"
	"github.com/seed-3119e985/genv/snapshot/state"
	"github.com/seed-3119e985/genv/snapshot/state/disk"
	"github.com/seed-3119e985/genv/snapshot/text"
)

func (p *userCommands) lockCommand() *cli.Command {
	return &cli.Command{
		Name: "lock",
		Usage: "run a command, or without one only wait, while no other `genv lock` uses this environment's " +
			"GPUs",
		ArgsUsage:       "[COMMAND [ARGUMENT…]]",
		SkipFlagParsing: true, // all that follows is the command's
		Action:          p.lock,
	}
}

func (p *userCommands) lock(c *cli.Context) error {
	words := c.Args().Slice()
	switch {
	case len(words) == 1 && (words[0] == "--help" || words[0] == "-h"):
		return cli.ShowSubcommandHelp(c)
	case len(words) > 0 && words[0] == "--":
		words = words[1:]
	}
	who := p.person()
	var devices []snapshot.DeviceIndex
	files, env, err := who.here(c.Context)
	if err == nil {
		devices = files.AttachedTo(env.EID)
	}
	owned, ownedErr := who.Store.OwnedDir()
	notActive := errors.Is(err, errNotActive)
	switch {
	case ownedErr != nil:
		return ownedErr
	case owned != "" && (notActive || err == nil && len(devices) == 0):
		return errors.New("no GPU is locked, and the command was not run: this shell has no GPU; run `genv attach` " +
			"first")
	case notActive:
		fmt.Fprintln(p.Err, "genv: no GPU is locked: this shell is in no environment; run `genv activate` first")
	case err != nil:
		return err
	}
	if len(devices) > 0 {
		release, err := p.lockDevices(c.Context, who, devices, &files)
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
	return p.supervise("lock", exec.Command(words[0], words[1:]...), signals)
}

// silentWait is how long `genv lock` waits before it says so.
const silentWait = 2 * time.Second

// lockDevices waits as long as it takes, and prints which process has the lock.
func (p *userCommands) lockDevices(
	ctx context.Context, who *hostUser, devices []snapshot.DeviceIndex, files *state.Files,
) (release func(), err error) {
	soon, cancel := context.WithTimeout(ctx, silentWait)
	defer cancel()
	release, err = who.Store.LockDevices(soon, devices)
	busy, ok := errors.AsType[*disk.BusyError](err)
	if !ok || ctx.Err() != nil {
		return release, err
	}
	holder := "a process that can't be seen from here"
	if busy.Holder != nil {
		holder = busy.Holder.String()
		if isStranger(files, filepath.Base(busy.Path), busy.Holder.UID) {
			holder += ", to whom the GPU is not attached"
		}
	}
	fmt.Fprintln(p.Err, text.PrintableLines(fmt.Sprintf("genv: waiting for %s, which is held by %s", busy.Path,
		holder)))
	release, err = who.Store.LockDevices(ctx, devices)
	if again, ok := errors.AsType[*disk.BusyError](err); ok && again.Waited == 0 {
		return nil, busy // interrupted before the second attempt: the first one knows the holder
	}
	return release, err
}

// isStranger says whether the device of a lock is known not to be attached to the user of a uid. Root isn't a stranger.
func isStranger(files *state.Files, lock string, uid *snapshot.UID) bool {
	if uid == nil || *uid == 0 {
		return false
	}
	environments := snapshot.ByID(files.Environments)
	return !slices.ContainsFunc(files.Devices, func(d snapshot.Device) bool {
		return disk.LockOf(d.Index) == lock && slices.ContainsFunc(d.Attachments, func(a snapshot.Attachment) bool {
			env := environments[a.EID]
			return env != nil && env.UID == *uid
		})
	})
}
