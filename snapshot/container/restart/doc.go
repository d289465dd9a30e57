// Package restart remembers for which user a container of root's engine was started, since its
// token proves that only once and `docker restart` starts it again with the same one:
//
//	err := notes.Write(restart.Note{ID: id, UID: uid, EID: eid, Runtime: "docker"}, token)
//	note, err := notes.Find(id, "docker", token)
//
// Only root's runtime writes and reads the notes. One is good for a start of the same
// container, by its id and its engine, that carries the same token: the id alone, which every
// user sees, is worth nothing. It is removed when the engine doesn't know the container any
// more, and at the latest Life after its last start.
package restart
