// Package guard has `genv guard`, which shows, runs and ends the kernel guard of this
// machine, and the Keeper of this machine's guard for the other commands that run one.
package guard
