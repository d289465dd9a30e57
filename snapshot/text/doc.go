// Package text reads and writes small texts, each kind in one place: durations, amounts
// of memory, lists of device indices, host patterns, and hints for misspelt words. It
// makes foreign text, which others chose, safe for a terminal.
//
// It imports no other package of genv, so that every package may use it.
package text
