// Package fence keeps a controller that was replaced from acting on a host.
//
// A controller in a loop sends a Claim: an epoch, and the source that counts epochs. Root's
// genv on the host notes the highest epoch it has seen, on the disk, before anything is done,
// and refuses lower ones. So a controller that was frozen, or cut off, and doesn't know yet
// that another one took its place, does no harm.
//
//	file := &fence.File{Path: fence.Path(os.Getenv), Now: time.Now}
//	err := file.Admit(claim) // *RefusedError: another controller acts on this host
//
// Epochs of two sources can't be compared: a host stays with the source that it knows, until
// an administrator says --take-over. What a controller claims is believed, since who gets
// here is root on the host.
package fence
