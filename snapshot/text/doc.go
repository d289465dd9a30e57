// Package text holds how genv writes and reads small things, each in one place:
// durations, amounts of memory, lists of device indices, host patterns, hints for
// misspelt words, and how text that someone else chose is shown on a terminal.
//
// It imports no other package of genv, so that every package may use it.
package text
