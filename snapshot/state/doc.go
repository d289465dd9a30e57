// Package state reads and writes the state files of a GPU host: envs.json and devices.json,
// which genv 1.4.3 reads and writes too, the lock that guards them, and a lock
// file for each device.
//
// A Store is a folder on disk; Files are what stands in it, and the rules by
// which they change (Activate, Attach, Detach, …) are pure methods of Files:
//
//	store := state.New(state.Dir(os.Getenv), state.StoreOptions{})
//	err := store.Update(ctx, func(b *state.Files) error {
//		_, err := b.Attach(state.AttachRequest{EID: "1667", Count: 2, At: now})
//		return err
//	})
//
// The folder may be written by every user of the host, so nothing in it is
// trusted: files are opened without following links, checked before they are
// read, and every field is checked when they are decoded. A file that does not
// pass is reported and left as it is; see ErrCorrupt and ErrUnsafe.
//
// What root knows of the folder is kept outside it, in StoreOptions.Root: to which PID
// namespace and boot the registered PIDs belong, and the last good copy of both
// files, from which root restores what is lost.
//
// The package never runs nvidia-smi: what it finds is handed to RegisterDevices, and
// so it is never run under the lock.
package state
