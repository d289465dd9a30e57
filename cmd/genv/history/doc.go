// Package history shows the audit log of a host or of a controller: what was
// done to which user, when and why.
package history
