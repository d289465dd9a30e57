// Package hosts lists the language models that the environments of several hosts serve.
package hosts

import (
	"io"
	"time"

	"github.com/seed-3119e985/genv/cmd/genv/llm"
	"github.com/seed-3119e985/genv/cmd/genv/render"
	"github.com/seed-3119e985/genv/remote"
	"github.com/seed-3119e985/genv/remote/controller"
	"github.com/seed-3119e985/genv/snapshot"
)

// Document is the JSON of `genv remote llm ps`; docs/json.md describes it.
type Document struct {
	Schema     string                 `json:"schema"`
	Models     []Model                `json:"models"`
	Failed     []remote.Failure       `json:"failed"`
	Duplicates []controller.Duplicate `json:"duplicates"`
}

// Model is a line of the list.
type Model struct {
	Host string `json:"host"`
	llm.Model
}

// Of lists what the environments of hosts serve, and how many hosts answered.
func Of(results []remote.Result[[]snapshot.Environment]) (models []Model, answered int) {
	models = []Model{}
	for _, r := range results {
		if r.Err != nil {
			continue
		}
		answered++
		for _, m := range llm.Models(r.Value) {
			models = append(models, Model{r.Host.Name, m})
		}
	}
	return models, answered
}

// Find is the first host that serves a model at a known port, and the port there.
func Find(results []remote.Result[[]snapshot.Environment], model string) (host remote.Host, port int, ok bool) {
	for i := range results {
		models, _ := Of(results[i : i+1])
		for _, m := range models {
			if m.Served.Model == model && m.Port != 0 {
				return results[i].Host, m.Port, true
			}
		}
	}
	return host, 0, false
}

// Write prints the table.
func Write(w io.Writer, models []Model, output render.Output, now time.Time) error {
	t := output.Table(render.Col("HOST", 25), render.Col("MODEL", 12), render.Col("PORT", 8), render.Col("CREATED", 21), render.Col("EID", 8), render.Col("USER", 0))
	for _, m := range models {
		t.Add(m.Host, output.Name(m.Served.Model), m.ShownPort(), output.Age(m.Created, now), output.Name(string(m.EID)), output.Name(string(m.User)))
	}
	return t.Write(w)
}
