// Package oci reads and changes config.json, in which a container engine describes a
// container for an OCI runtime (OCI runtime specification, "Configuration").
//
//	config, err := oci.Read(bundle)
//	config.SetEnv("GENV_ENVIRONMENT_ID", "4c01db0b339c")
//	err = config.Write()
//
// What is not changed stays as it is, byte for byte, also what this package doesn't know.
// It gives nothing of the file a meaning: see package grant.
package oci
