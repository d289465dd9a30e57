// Package bundle writes what a bug report needs into a compressed tar file, without
// secrets: private keys, passwords, tokens, web addresses behind their host, and values of
// environment variables.
//
//	file, err := bundle.Create("report.tar.gz")
//	err = file.AddText("journal.txt", log)
//	err = file.AddJSON("doctor.json", document)
//	err = file.Close()
//
// What is not known to be harmless is removed, at the price of removing too much. The
// package reads no configuration by itself: the caller chooses what goes into the file.
package bundle
