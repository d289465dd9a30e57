// Package user has the commands that people run on a GPU host, and the shims of
// nvidia-smi and docker.
package user
