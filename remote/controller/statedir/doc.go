// Package statedir keeps the memory of a controller, and what operators asked for, in a folder
// (--state-dir), so that a restart continues where the last run stopped. It also changes what
// operators asked for while no controller runs. What the files mean is decided elsewhere.
package statedir
