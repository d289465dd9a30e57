// Command genv-bench measures genv on this machine and prints a table, ratios
// first. `make bench` runs it. Where it is not root, or sshd is missing, it says
// which rows it leaves out.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/signal"
)

func main() {
	genv := flag.String("genv", "bin/genv", "the program to measure")
	hosts := flag.Int("hosts", 100, "hosts of real sshd")
	runs := flag.Int("runs", 5, "runs of each row, of which the median counts")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	b := &bench{genv: *genv, hosts: *hosts, runs: *runs, out: os.Stdout}
	if err := b.run(ctx); err != nil {
		fmt.Fprintln(os.Stderr, "genv-bench:", err)
		os.Exit(1)
	}
}
