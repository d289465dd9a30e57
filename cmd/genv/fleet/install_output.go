package fleet

import (
	"errors"
	"io"

	"github.com/seed-3119e985/genv/cmd/genv/render"
	"github.com/seed-3119e985/genv/remote"
	"github.com/seed-3119e985/genv/remote/install"
)

// InstallDocument is the JSON of `genv remote install`; docs/json.md describes it.
type InstallDocument struct {
	Schema string           `json:"schema"`
	Check  bool             `json:"check"`
	Hosts  []installedHost  `json:"hosts"`
	Failed []remote.Failure `json:"failed"`
}

type installedHost struct {
	Host    string           `json:"host"`
	Arch    string           `json:"arch"`
	Path    string           `json:"path"`
	Before  *install.Version `json:"before"`
	Now     *install.Version `json:"now"`
	Result  install.Result   `json:"result"`
	Account string           `json:"sudoers_for,omitzero"`
	Sudoers bool             `json:"sudoers_changed"`
	Shims   bool             `json:"shims_changed"`
	Notes   []string         `json:"notes"`
}

func (f *installation) write(w io.Writer, results []remote.Result[*install.Outcome], failures []remote.Failure) error {
	document := InstallDocument{Schema: "genv.remote.install/1", Check: f.check, Hosts: []installedHost{}, Failed: failures}
	for i := range results {
		if o := results[i].Value; results[i].Err == nil {
			document.Hosts = append(document.Hosts, installedHost{
				results[i].Host.Name, o.Arch, o.Path, o.Before, o.Now, o.Result, o.Account, o.Sudoers, o.Shims, append([]string{}, o.Notes...),
			})
		}
	}
	if f.output.Format == "json" {
		return render.WriteJSON(w, document)
	}
	if len(document.Hosts) == 0 {
		return nil
	}
	table := f.output.Table(render.Col("HOST", 6), render.Col("ARCH", 6), render.Col("PATH", 6), render.Col("BEFORE", 8),
		render.Col("NOW", 5), render.Col("SUDOERS FOR", 13), render.Col("RESULT", 8))
	for _, h := range document.Hosts {
		result := string(h.Result)
		if f.check && h.Result != install.Unchanged {
			result = "would be " + result
		}
		same := h.Before != nil && h.Now != nil && h.Before.Version == h.Now.Version && h.Before.Sum != h.Now.Sum
		table.Add(h.Host, h.Arch, h.Path, versionCell(h.Before, same), versionCell(h.Now, same), sudoersCell(&h), result)
	}
	err := table.Write(w)
	if f.output.Format == "tui" {
		err = errors.Join(err, writeNotes(w, document.Hosts))
	}
	return err
}

func writeNotes(w io.Writer, hosts []installedHost) error {
	table := render.Output{Format: "tui", NoHeader: true}.Table(render.Col("HOST", 0), render.Col("NOTE", 0))
	for _, h := range hosts {
		for _, note := range h.Notes {
			table.Add(h.Host+":", note)
		}
	}
	return table.Write(w)
}

// versionCell is a version; with the beginning of its checksum if that is asked for, and
// that alone if the version is unknown.
func versionCell(v *install.Version, withSum bool) string {
	if v == nil {
		return "-"
	}
	sum := "sha256 " + v.Sum[:min(len(v.Sum), 12)]
	switch {
	case v.Version == "":
		return sum
	case withSum:
		return v.Version + " (" + sum + ")"
	}
	return v.Version
}

func sudoersCell(h *installedHost) string {
	switch {
	case h.Sudoers && h.Result == install.Uninstalled:
		return "removed"
	case h.Account == "":
		return "-"
	}
	return h.Account
}

func countChanged(results []remote.Result[*install.Outcome]) (changed int) {
	for _, r := range results {
		if r.Err == nil && r.Value.Result != install.Unchanged {
			changed++
		}
	}
	return changed
}
