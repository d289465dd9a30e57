// Package rootless gives devices to containers of users' own engines (rootless Docker): the
// engine's runtime is root only in its user's namespace, and asks root's service, which makes
// the change and writes the record. The user is the one who, as the kernel reports it, owns
// the process that asks:
//
//	granted, err := host.Do(ctx, rootless.Asked{ID: id, Claim: &request}, asker) // by the runtime
//	_, err = host.Do(ctx, rootless.Asked{ID: id, Init: pid}, asker)              // by the hook at the start
//	_, err = host.Do(ctx, rootless.Asked{ID: id, Ended: true}, asker)            // by the hook at the end
//
// A user can ask for anything here that `genv attach` would do for the same user, and nothing
// else: the id of a container that another user has means another record (record.OfUser).
package rootless
