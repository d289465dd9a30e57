// Package leadership is the flags of `genv remote enforce` about a leader among several
// controllers, and the etcd that they name.
package leadership
