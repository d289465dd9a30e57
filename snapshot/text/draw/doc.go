// Package draw writes styled text and tables for a terminal. It knows nothing of what they
// say.
//
//	t := draw.Table{Columns: []draw.Column{{Name: "HOST", Least: 10}}, Rows: rows}
//	lines := t.Lines(80) // none is wider than 80 columns
//
// Text of others passes through Shown first: nothing of it reaches the terminal as a
// control sequence.
package draw
