package disk_test

import (
	"context"
	"fmt"
	"io"
	"os"
	"syscall"

	"github.com/seed-3119e985/genv/snapshot"
	"github.com/seed-3119e985/genv/snapshot/state"
	"github.com/seed-3119e985/genv/snapshot/state/disk"
)

// enter is an update that changes both files.
func enter(pid snapshot.PID) func(*state.Files) error {
	return func(b *state.Files) error {
		eid := snapshot.EnvID(fmt.Sprint(pid))
		err := b.Activate(state.Activation{EID: eid, UID: snapshot.UID(os.Getuid()), PID: pid, At: at("12:00:00")})
		if err != nil {
			return err
		}
		_, err = b.Attach(state.AttachRequest{EID: eid, Count: 1, At: at("12:00:01")})
		return err
	}
}

// firstUse is a child: DIR UMASK, uses a folder for the first time.
func firstUse(args []string) error {
	syscall.Umask(number(args[1]))
	store := everyoneLives(args[0])
	if _, err := store.RegisterDevices(context.Background(), gpus(2)); err != nil {
		return err
	}
	if err := store.Update(context.Background(), enter(7)); err != nil {
		return err
	}
	release, err := store.LockDevices(context.Background(), []snapshot.DeviceIndex{0, 1})
	if err == nil {
		release()
	}
	return err
}

// dieAt is a child: DIR STEP, kills itself at a step of a write.
func dieAt(args []string) error {
	store := everyoneLives(args[0])
	store.OnStep(func(step string) {
		if step == args[1] {
			_ = syscall.Kill(os.Getpid(), syscall.SIGKILL)
		}
	})
	err := store.Update(context.Background(), enter(20))
	return fmt.Errorf("lived on past the step %q: %w", args[1], err)
}

// hold is a child: DIR, holds the lock until its stdin is closed.
func hold(args []string) error {
	return everyoneLives(args[0]).Update(context.Background(), func(*state.Files) error {
		fmt.Println("held")
		_, err := io.Copy(io.Discard, os.Stdin)
		return err
	})
}

// printOwners is a child: DIR, reads the state files as an ordinary user.
func printOwners(args []string) error {
	files, err := disk.New(args[0], disk.Config{}).Read(context.Background())
	for _, e := range files.Environments {
		fmt.Printf("%s %v %v\n", e.EID, e.PIDs, e.OwnerMismatch)
	}
	return err
}

// look is a child that reads the folder in args[0] with root's notes in args[1].
func look(args []string) error {
	files, err := disk.New(args[0], disk.Config{RootDir: args[1]}).Read(context.Background())
	fmt.Printf("%d environments, liveness unknown: %v, warnings %q\n", len(files.Environments), files.LivenessUnknown, files.Warnings)
	return err
}
