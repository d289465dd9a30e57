// Package environment has what commands on this host and on a fleet have in
// common about environments: settings as flags, what --query prints, and JSON.
package environment
