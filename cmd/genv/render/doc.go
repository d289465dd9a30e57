// Package render prints what commands have to say: tables as text and CSV, JSON
// documents, progress, and the hosts that failed. It escapes what could harm a
// terminal or a spreadsheet.
package render
