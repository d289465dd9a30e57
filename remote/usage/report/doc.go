// Package report turns what a store of usage sums up into a document: sorted, with shares, by group.
//
//	d := report.New(sums, report.ByUser, time.Local)
//	d.Top(10)
//
// A Reader reads reports for viewers, while a recorder writes: with connections of its own, one report at a
// time, each with a time limit, and again only after a minute. Whatever many viewers ask for, the store has one
// reader.
//
//	r := report.NewReader(report.ReaderOptions{Open: open, Now: time.Now, In: time.Local})
//	reports, err := r.Report(ctx, report.Query{By: report.ByUser, Since: since, Until: until})
package report
