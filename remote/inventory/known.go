package inventory

import "github.com/seed-3119e985/genv/remote"

// Known returns all hosts and groups, each as @name, of the YAML files that a selection
// names, or else of the first default file that exists. Completion offers them.
func Known(sel Selection, open Open) (hosts []remote.Host, groups []string, err error) {
	_, files, err := sel.read(open)
	if err != nil {
		return nil, nil, err
	}
	f, err := sel.findFleet(files, true, open)
	if err != nil || len(f.files) == 0 {
		return nil, nil, err
	}
	return f.hosts, f.groupNames(), nil
}
