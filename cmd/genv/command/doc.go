// Package command has what the commands of genv share: the program's streams,
// clock and environment variables, its exit codes, and the reading of flags and
// arguments. What commands print is formatted by package render.
package command
