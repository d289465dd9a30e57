// Package llm talks to Ollama's HTTP API, and knows how the environments are named in which
// `genv llm serve` runs it.
//
//	client := llm.Client{Port: 11434}
//	if err := client.WaitReady(ctx); err == nil {
//		err = client.Load(ctx, "llama3", os.Stderr)
//	}
//
// A name is a claim of the environment's user, and so is what answers at a port: all of it is
// bounded, and made printable before it is shown.
package llm
