package fleet

import (
	"io"
	"time"

	"github.com/seed-3119e985/genv/cmd/genv/llm"
	"github.com/seed-3119e985/genv/cmd/genv/render"
	"github.com/seed-3119e985/genv/remote"
	"github.com/seed-3119e985/genv/remote/controller"
	"github.com/seed-3119e985/genv/snapshot"
)

// llmDocument is the JSON of `genv remote llm ps`; docs/json.md describes it.
type llmDocument struct {
	Schema     string                 `json:"schema"`
	Models     []llmModel             `json:"models"`
	Failed     []remote.Failure       `json:"failed"`
	Duplicates []controller.Duplicate `json:"duplicates"`
}

// llmModel is a line of the list.
type llmModel struct {
	Host string `json:"host"`
	llm.Model
}

// llmModels lists what the environments of hosts serve, and how many hosts answered.
func llmModels(results []remote.Result[[]snapshot.Environment]) (models []llmModel, answered int) {
	models = []llmModel{}
	for _, r := range results {
		if r.Err != nil {
			continue
		}
		answered++
		for _, m := range llm.Models(r.Value) {
			models = append(models, llmModel{r.Host.Name, m})
		}
	}
	return models, answered
}

// findModel is the first host that serves a model at a known port, and the port there.
func findModel(results []remote.Result[[]snapshot.Environment], model string) (host remote.Host, port int, ok bool) {
	for i := range results {
		models, _ := llmModels(results[i : i+1])
		for _, m := range models {
			if m.Served.Model == model && m.Port != 0 {
				return results[i].Host, m.Port, true
			}
		}
	}
	return host, 0, false
}

// writeModels prints the table.
func writeModels(w io.Writer, models []llmModel, output render.Output, now time.Time) error {
	t := output.Table(render.Col("HOST", 25), render.Col("MODEL", 12), render.Col("PORT", 8), render.Col("CREATED", 21), render.Col("EID", 8), render.Col("USER", 0))
	for _, m := range models {
		t.Add(m.Host, output.Name(m.Served.Model), m.ShownPort(), output.Age(m.Created, now), output.Name(string(m.EID)), output.Name(string(m.User)))
	}
	return t.Write(w)
}
