// Package files keeps the usage of one host in small files, one for each day, where there is no
// database: genv has none. It implements store.Store, and lets each user read the user's own part.
//
//	s, err := files.Open("/var/lib/genv/usage", files.Options{In: time.Local, UID: lookup})
//	own, err := files.OpenOwn("/var/lib/genv/usage", uid, time.Local)
//
// In the folder are facts.json, which says for which time there is something; all, a folder of
// root's with the days; and for each user a folder with the user's own, named by the uid. A user
// may enter that and can't list it: the names of the files are dates.
package files
