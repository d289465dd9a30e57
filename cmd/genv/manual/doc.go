// Package manual describes the commands of genv for people: what --help prints, and man
// pages. Both are made from the same Page, which is made from the command itself, so that
// a flag is described in one place.
//
//	manual.WriteHelp(out, manual.PageOf(cmd, "genv remote enforce"), 80)
//	manual.WriteAll("/usr/share/man/man1", root, "v2.0.0")
//
// The descriptions and examples of the commands are in this package too (describe). They
// are built when help is asked for, so that other starts don't take the time. What the
// commands do, and which flags they have, is not decided here.
package manual
