// Package disk reads and writes the state files of a GPU host in their folder, as genv
// 1.4.3 does, takes the lock that guards them, and the lock files of devices.
//
// A Store removes what has ended before it returns the files, and writes the changes of an update all or none:
//
//	store := disk.New(disk.Dir(os.Getenv), disk.Config{})
//	err := store.Update(ctx, func(f *state.Files) error {
//		_, err := f.Attach(state.AttachRequest{EID: "1667", Count: 2, At: now})
//		return err
//	})
//
// Every user of the host may write to the folder, so nothing in it is trusted. A file that fails a check is reported
// and left unchanged; see ErrCorrupt, ErrLost and folder.ErrUnsafe.
//
// Root's note about the folder is kept outside it, in Config.RootDir: the PID namespace and boot to which the
// registered PIDs belong, and what root saw in the files (state.RootNote). What is lost since then is unknown.
//
// RunDir is where root's genv keeps what it notes about the host, in files that only root can write; the caller decides
// what a file contains:
//
//	path := filepath.Join(disk.RunDir(os.Getenv), disk.RootFile(os.Getenv, "asked"))
//	dir, err := folder.MakeTrusted(filepath.Dir(path))
//
// The package does not run nvidia-smi, so that nvidia-smi never runs under the lock:
// the caller passes its results to RegisterDevices.
package disk
