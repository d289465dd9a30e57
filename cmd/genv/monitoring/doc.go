// Package monitoring runs `genv monitor` and `genv remote monitor`: their flags, the loop
// that collects, the HTTP server that Prometheus scrapes, and the configuration files for
// Prometheus and Grafana. It doesn't know how hosts are reached; package remote/metrics
// has the names of the metrics.
package monitoring
