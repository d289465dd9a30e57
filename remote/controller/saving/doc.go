// Package saving writes the state of a loop in the background, so that the loop does not wait
// for the disk. While a write is under way, all that is to be written next is written
// together: however slow the disk is, something is safe after two writes at most.
//
//	safe := w.Write(func() { … })
//	w.After(safe, func() { … })
//
// What is written, and where, is decided elsewhere.
package saving
