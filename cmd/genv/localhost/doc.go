// Package localhost opens this machine as a GPU host for commands: its state
// files, nvidia-smi and /proc.
package localhost
