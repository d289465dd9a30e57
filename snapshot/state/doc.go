// Package state reads and writes the state files of a GPU host, envs.json and
// devices.json, in the format of genv 1.4.3. It takes the lock that guards these
// files, and the lock files of devices.
//
// A Store reads and writes a folder. Files are the decoded contents; their methods
// (Activate, Attach, Detach, …) are the rules for changing them, and are pure:
//
//	store := state.New(state.Dir(os.Getenv), state.StoreOptions{})
//	err := store.Update(ctx, func(f *state.Files) error {
//		_, err := f.Attach(state.AttachRequest{EID: "1667", Count: 2, At: now})
//		return err
//	})
//
// Every user of the host may write to the folder, so nothing in it is trusted: files
// are opened without following links, checked before they are read, and all fields
// are checked when they are decoded. A file that fails a check is reported and left
// unchanged; see ErrCorrupt and ErrUnsafe.
//
// Root's notes about the folder are kept outside it, in StoreOptions.RootDir: the PID
// namespace and boot to which the registered PIDs belong, and the last good copy of
// both files, from which root's genv restores lost files.
//
// The package does not run nvidia-smi, so that nvidia-smi never runs under the lock:
// the caller passes its results to RegisterDevices.
package state
