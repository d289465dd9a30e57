// Package change is what a person can ask for to be changed in the state files, as a
// value: it is applied by the same code in the process of that person, under the lock of
// the state files, and in the service to which it was sent as JSON.
//
//	c, err := change.Decode(request)
//	result, err := c.Apply(files, change.Requester{UID: uid, …}) // under the lock
//
// Who may change what is decided here. A change says what is wanted, never who wants it: users, their names and the
// time come from the Requester, which the one that applies the change fills in from what the kernel reports.
//
// This package has no clock and touches no file or process: service.Changer applies a change to the state files of this
// host.
package change
