// Package requirement says which GPUs `genv remote wait` waits for, and finds them in a fleet.
package requirement
