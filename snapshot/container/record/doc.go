// Package record holds what root's hook knows about a started container: in which
// environment it was started, and for which user if that was proved. There is one file
// for each container, <run>/containers/ID.json, which only root can write and everybody
// may read:
//
//	err := record.Write("/run/genv", record.Record{ID: id, EID: eid, UID: &uid, Proof: record.Token, Runtime: "docker", StartedAt: now})
//	r, err := record.Read("/run/genv", id)
//	err = record.Remove("/run/genv", id)
//
// The package doesn't decide what a record means, and doesn't know whether the container
// still runs: its ID is unique, but a restarted container has it again, so that the hook
// replaces the record at each start.
package record
