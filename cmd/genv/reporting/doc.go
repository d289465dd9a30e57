// Package reporting has the flags of `genv remote report`, and prints a report of usage.
//
//	r, err := reporting.Read(c, p, by, formats) // from Flags
//	r.Finish(d, p.Now())
//	err = reporting.Write(p, d, r.Output)
package reporting
