package metrics

import (
	"encoding/json"
	"net/http"
)

// targets are some to scrape, as Prometheus' http_sd reads them
// (https://prometheus.io/docs/prometheus/latest/http_sd/).
type targets struct {
	Targets []string          `json:"targets"`
	Labels  map[string]string `json:"labels"`
}

// serveTargets answers with a target for the controller and one for each host, all at the
// address under which the client reached it. Each has an instance of its own: the series
// that Prometheus adds would be the same ones otherwise.
func (e *Exporter) serveTargets(w http.ResponseWriter, r *http.Request) {
	hosts := e.Feed.Fleet().Hosts
	address := []string{r.Host}
	list := make([]targets, 0, len(hosts)+1)
	list = append(list, targets{address, map[string]string{"__metrics_path__": "/metrics", "__param_part": "controller"}})
	for i := range hosts {
		name := string(hosts[i].Name)
		list = append(list, targets{address, map[string]string{"__metrics_path__": "/metrics", "__param_host": name, "instance": name}})
	}
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("X-Content-Type-Options", "nosniff")
	w.Header().Set("Cache-Control", "no-store")
	_ = json.NewEncoder(w).Encode(list) // the client may have gone
}
