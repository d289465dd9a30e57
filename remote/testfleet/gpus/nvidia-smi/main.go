// Command nvidia-smi is a stand-in for NVIDIA's program on hosts with simulated GPUs; see package gpus.
package main

import (
	"os"

	"github.com/seed-3119e985/genv/remote/testfleet/gpus"
)

func main() { os.Exit(gpus.Main(os.Args[1:], os.Stdout, os.Stderr, os.Getenv)) }
