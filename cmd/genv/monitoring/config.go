package monitoring

import (
	"cmp"
	"net"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/urfave/cli/v2"

	"github.com/seed-3119e985/genv/cmd/genv/command"
	"github.com/seed-3119e985/genv/snapshot/state/disk"
)

// Config is what the flags of `genv monitor` say.
type Config struct {
	Address   string // where the server listens; an IP address
	Port      int    // 0 for any free one
	Interval  time.Duration
	ConfigDir string // absolute
}

// Flags are those of genv 1.4.3, and the address.
func Flags(getenv func(string) string) []cli.Flag {
	return []cli.Flag{
		&cli.StringFlag{Name: "config-dir", Category: command.Site, Value: defaultDir(getenv), Usage: "`FOLDER` for the configuration files of Prometheus and Grafana"},
		&cli.IntFlag{Name: "port", Category: command.Site, Aliases: []string{"p"}, Value: 8000, Usage: "serve the metrics on this `PORT`"},
		&cli.StringFlag{Name: "address", Category: command.Site, Value: "0.0.0.0", Usage: "serve them on this IP `ADDRESS`; 127.0.0.1 for this machine only"},
		&cli.StringFlag{Name: "interval", Category: command.Site, Aliases: []string{"i"}, Value: "10", Usage: "`TIME` between two collections, in seconds or as 500ms"},
	}
}

func defaultDir(getenv func(string) string) string { return filepath.Join(disk.Dir(getenv), "metrics") }

// ReadConfig reads Flags.
func ReadConfig(c *cli.Context) (Config, error) {
	config := Config{Address: c.String("address"), Port: c.Int("port")}
	if config.Port < 0 || config.Port > 65535 {
		return config, command.UsageError("--port %d: write a number from 1 to 65535, or 0 for any free port", config.Port)
	}
	if net.ParseIP(config.Address) == nil {
		return config, command.UsageError("--address %q: write an IP address of this machine, such as 127.0.0.1, or 0.0.0.0 for all", config.Address)
	}
	var err error
	if config.Interval, err = command.PositiveDuration(c, "interval"); err != nil {
		return config, err
	}
	if config.ConfigDir, err = filepath.Abs(c.String("config-dir")); err != nil {
		return config, err
	}
	if strings.ContainsFunc(config.ConfigDir, func(r rune) bool { return r < ' ' || strings.ContainsRune("\x7f\"'`;#$%\\", r) }) {
		return config, command.UsageError("--config-dir %q: grafana.ini can't express this path; write one without quotes and without ; # $ %% \\", config.ConfigDir)
	}
	return config, nil
}

// target is where a Prometheus on this machine finds the server.
func (config *Config) target(port int) string {
	ip := net.ParseIP(config.Address)
	if ip.IsUnspecified() || ip.IsLoopback() {
		return net.JoinHostPort(cmp.Or(loopback(ip), "localhost"), strconv.Itoa(port))
	}
	return net.JoinHostPort(config.Address, strconv.Itoa(port))
}

// loopback is the address if it is one that the name localhost doesn't lead to.
func loopback(ip net.IP) string {
	if ip.IsUnspecified() || ip.Equal(net.IPv4(127, 0, 0, 1)) {
		return ""
	}
	return ip.String()
}
