// Package login keeps notices for users who are not logged in, until their next login.
//
//	box := login.Box{Root: "/var/lib/genv"}
//	err := box.Keep(1001, text, now)                       // root's genv
//	unseen, err := box.Unseen(1001, login.Seen{Path: …})   // the user's shell
//
// A user's notices are in one file of root's, which only that user may read besides: an
// access control list says so, as with the user's history. Which of them the user has
// seen is in a file of the user's own.
//
// The number of notices, their size and their age are bounded. The package shows
// nothing: texts are as they came, and the caller escapes them.
package login
