// Package fleet has the commands that run on a controller: `genv remote …` and
// `genv policy …`.
package fleet
