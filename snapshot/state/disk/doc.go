// Package disk reads and writes the state files of a GPU host in their folder, as genv 1.4.3 does, takes the lock that
// guards them, and the lock files of devices. A Store removes what has ended before it returns the files, and writes the
// changes of an update all or none:
//
//	store := disk.New(disk.Dir(os.Getenv), disk.Config{})
//	err := store.Update(ctx, func(f *state.Files) error {
//		_, err := f.Attach(state.AttachRequest{EID: "1667", Count: 2, At: now})
//		return err
//	})
//
// Every user of the host may write to the folder, so nothing in it is trusted. A file that fails a check is reported
// and left unchanged; see ErrCorrupt, ErrLost and folder.ErrUnsafe. Root's note about the folder is outside it, in
// Config.RootDir: the PID namespace and boot of the registered PIDs, and what root saw in the files (state.RootNote).
// What is lost since then is unknown. nvidia-smi never runs under the lock: see RegisterDevices.
package disk
