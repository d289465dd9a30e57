// Package charts shows the document of a report of usage in a browser. It is apart from package
// report, so that genv, which only prints tables, does without html/template.
//
//	err := charts.WritePage(w, d, days)
package charts
