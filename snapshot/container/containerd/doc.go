// Package containerd reads what containerd keeps about containers in its metadata database:
// the image and the labels, which are not in a container's bundle.
//
//	found, err := containerd.Read(file, "default", id)
//
// It only reads, and asks no lock, since containerd holds that for as long as it runs. The
// file is a B+ tree of bbolt (https://pkg.go.dev/go.etcd.io/bbolt), in which a commit writes
// new pages and then one of two meta pages; a page of the last commit is written again only
// after another one. So what was read is whole if the last commit is still the same afterwards.
// Whether the file can be trusted is for the caller to check.
package containerd
