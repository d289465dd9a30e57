package proc

import "sync/atomic"

// Machine is what is known of the machine on which this runs, for every FS that is its /proc.
type Machine struct {
	accounts Accounts
	mounts   mounts
	bootID   atomic.Pointer[string] // nil before it was read; it stays for as long as this program runs
	// lockHolders remembers which holders of locks don't answer: reading the stat of one that is in execve(2) can take
	// for ever.
	lockHolders ReaderProcess
}

// here is this one.
var here Machine
