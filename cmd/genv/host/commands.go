// Package host has the commands that root runs on a GPU host: `genv usage` for
// controllers, and `genv enforce`.
package host
