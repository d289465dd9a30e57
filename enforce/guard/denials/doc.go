// Package denials keeps which opens of devices the kernel guard denied, or would have
// denied, in a list that no user can fill up alone. The list is a value; guard-denials.json
// in root's run folder holds it.
//
//	kept, isNew := list.Add(denials.Open{UID: 1001, Minor: 3, …}, now)
//	err := denials.Write("/run/genv", list)
//	list, err := denials.Read("/run/genv")
//	news := list.Since(seq) // what a controller hasn't seen yet
package denials
