// Package report turns what a store of usage sums up into a document: sorted, with shares,
// by group, and as a page for a browser. It is pure.
//
//	d := report.New(sums, report.ByUser, time.Local)
//	d.Top(10)
//	err := report.WriteHTML(w, d, days)
package report
