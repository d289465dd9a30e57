// Package reporting is what `genv report` and `genv remote report` share: their flags, and how
// they print a report of usage.
//
//	r, err := reporting.Read(c, p, by, formats) // from Flags
//	r.Finish(d, p.Now())
//	err = reporting.Write(p, d, r.Output)
package reporting
