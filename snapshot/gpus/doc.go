// Package gpus joins a host's snapshot into rows that answer the question asked most: who
// uses which GPU, and which are free?
//
//	for _, g := range gpus.Of(s) {
//		fmt.Println(g.Index, g.State, g.Users())
//	}
//
// It is pure, and only reads. Values that the host did not report are nil or empty, never
// zero.
package gpus
