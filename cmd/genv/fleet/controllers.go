package fleet

import (
	"github.com/urfave/cli/v2"

	"github.com/seed-3119e985/genv/cmd/genv/controllers"
	"github.com/seed-3119e985/genv/cmd/genv/render"
	"github.com/seed-3119e985/genv/remote"
	"github.com/seed-3119e985/genv/remote/controller"
)

// askControllers asks hosts which controller acts on them.
func (p *program) askControllers(c *cli.Context) ([]controllers.Host, []remote.Failure, error) {
	config, err := p.readConfig(c)
	if err != nil {
		return nil, nil, err
	}
	f, err := p.open(config)
	if err != nil {
		return nil, nil, err
	}
	defer f.close()
	pool := f.pool()
	defer pool.Close()
	looks := controller.Ask(c.Context, f.asker(), pool.Snapshot)
	failures := render.FailuresOf(looks)
	f.report(failures, nil)
	return controllers.HostsOf(pool, looks), failures, nil
}
