// Package state is what the state files of a GPU host, envs.json and devices.json, say in the format of genv 1.4.3, and
// the rules for changing it. Files are the decoded contents of both, also of older versions; their methods are pure:
//
//	attached, err := files.Attach(state.AttachRequest{EID: "1667", Count: 2, At: now})
//
// Every user of the host may write the files, so all fields are checked. Package disk reads and writes them, under the
// lock that guards them. This package has no clock and touches no file or process.
package state
