// Package hostreport keeps who used which GPU of this host while `genv enforce` runs here, and has
// the command `genv report`, which shows it: everybody's to root, and their own to others.
package hostreport
