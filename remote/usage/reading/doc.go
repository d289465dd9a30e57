// Package reading reads reports of usage for viewers, while a recorder writes: with connections
// of its own, one report at a time, each with a time limit, and again only after a minute.
//
//	r := reading.New(reading.Options{Open: open, Now: time.Now, In: time.Local})
//	reports, err := r.Report(ctx, reading.Query{By: report.ByUser, Since: since, Until: until})
//
// Whatever many viewers ask for, the store has one reader.
package reading
