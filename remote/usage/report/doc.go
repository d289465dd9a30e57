// Package report turns what a store of usage sums up into a document: sorted, with shares,
// by group. It is pure.
//
//	d := report.New(sums, report.ByUser, time.Local)
//	d.Top(10)
package report
