// Package state is what the state files of a GPU host, envs.json and devices.json, say in
// the format of genv 1.4.3, and the rules for changing it. Files are the decoded
// contents of both; their methods (Activate, Attach, Detach, …) are pure:
//
//	attached, err := files.Attach(state.AttachRequest{EID: "1667", Count: 2, At: now})
//
// Files of older versions are converted when they are decoded.
//
// Every user of the host may write the files, so all fields are checked when they are decoded. Package disk reads and
// writes them, under the lock that guards them. This package has no clock and touches no file or process.
package state
