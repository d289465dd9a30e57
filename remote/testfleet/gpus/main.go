package gpus

import (
	"cmp"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"text/template"
	"time"
)

// The environment variables that the stand-in reads.
const (
	EnvFile  = "GENV_SIM_GPUS"  // the path of the Driver's file
	EnvFault = "GENV_SIM_FAULT" // one of the Fault… texts, or empty
	EnvDev   = "GENV_DEV_DIR"   // the folder of device nodes, which it opens; empty for none
)

// The values of EnvFault.
const (
	FaultHang     = "hang" // it sleeps until it is killed or orphaned
	FaultMismatch = "mismatch"
	FaultNoDriver = "no-driver"
	FaultLost     = "lost"
)

// The exit codes and texts of failures are those of the real program (man
// nvidia-smi, RETURN VALUE), on stdout as there.
const (
	exitUsage    = 2
	exitNotFound = 6
	exitInfoROM  = 14
	exitLost     = 15
	exitUnknown  = 255
)

var faults = map[string]struct {
	code int
	text string
}{
	FaultMismatch: {18, "Failed to initialize NVML: Driver/library version mismatch\nNVML library version: 550.163\n"},
	FaultNoDriver: {9, "NVIDIA-SMI has failed because it couldn't communicate with the NVIDIA driver. " +
		"Make sure that the latest NVIDIA driver is installed and running.\n\n"},
	FaultLost: {15, "Unable to determine the device handle for GPU 0000:02:00.0: GPU is lost.  Reboot the system to recover this GPU\n"},
}

// Main is nvidia-smi on a simulated host: args are without the program's name. It returns the exit code.
func Main(args []string, stdout, stderr io.Writer, getenv func(string) string) int {
	if fault := getenv(EnvFault); fault != "" {
		if fault == FaultHang {
			hang()
		}
		f, ok := faults[fault]
		if !ok { // fails too, so that a misspelling is found
			f.code, f.text = exitUnknown, fmt.Sprintf("%s=%s is not a simulated fault\n", EnvFault, fault)
		}
		return answer(stdout, f.text, f.code)
	}
	options, refusal := parseArgs(args)
	if refusal != "" {
		return answer(stdout, refusal+"\n", exitUsage)
	}
	path := getenv(EnvFile)
	if path == "" {
		return answer(stderr, fmt.Sprintf("the simulated nvidia-smi needs %s, the path of the host's GPUs\n", EnvFile), exitUnknown)
	}
	host, err := Read(path)
	if err != nil {
		return answer(stderr, err.Error()+"\n", exitUnknown)
	}
	host = host.SeenBy(os.Getuid())
	if len(host.Devices) == 0 {
		return answer(stdout, "No devices were found\n", exitNotFound)
	}
	defer openDevices(getenv(EnvDev))()
	time.Sleep(time.Duration(host.DelayMS) * time.Millisecond)
	v := newView(host.Living("/proc"), time.Now())
	text, code := v.with(show(v, options))
	return max(answer(stderr, v.stderr(), 0), answer(stdout, text, code))
}

// openDevices opens all device nodes, as the real program does, and returns what closes them.
func openDevices(dir string) (closeAll func()) {
	var files []*os.File
	nodes, _ := filepath.Glob(filepath.Join(dir, "nvidia[0-9]*")) // the pattern is well formed
	for _, node := range nodes {
		if f, err := os.Open(node); err == nil && dir != "" {
			files = append(files, f)
		}
	}
	return func() {
		for _, f := range files {
			_ = f.Close() // nothing was written
		}
	}
}

// answer writes a text and returns the exit code, or another one if the reader has gone.
func answer(w io.Writer, text string, code int) int {
	if _, err := io.WriteString(w, text); err != nil {
		return exitUnknown
	}
	return code
}

func show(v view, o smiFlags) string {
	switch {
	case o.list:
		return render(list, v)
	case o.xml:
		return render(xml, v)
	case o.query:
		return render(details, v)
	case o.gpuFields != nil:
		return csv(o.gpuFields, v.gpuRows(), o.format)
	case o.appFields != nil:
		return csv(o.appFields, v.appRows(), o.format)
	}
	return render(table, v)
}

// hang lasts as long as the caller does, so that no test leaves it behind.
func hang() {
	for parent := os.Getppid(); os.Getppid() == parent; {
		time.Sleep(50 * time.Millisecond)
	}
}

// smiFlags are what the command line asks for; without any, the table is shown.
type smiFlags struct {
	list, query, xml     bool
	gpuFields, appFields []string
	format               []string
}

// parseArgs also returns nvidia-smi's message about arguments that it refuses, "" for none.
func parseArgs(args []string) (o smiFlags, refusal string) {
	for _, arg := range args {
		name, value, _ := strings.Cut(arg, "=")
		switch name {
		case "-L", "--list-gpus":
			o.list = true
		case "-q", "--query":
			o.query = true
		case "-x", "--xml-format":
			o.xml = true
		case "--query-gpu":
			o.gpuFields = split(value)
		case "--query-compute-apps":
			o.appFields = split(value)
		case "--format":
			o.format = split(value)
		default:
			return o, notRecognized(arg)
		}
	}
	return o, cmp.Or(o.badFormat(), badField(o.gpuFields, gpuRow(view{}, Device{})), badField(o.appFields, appRow(view{}, App{})), o.badCombination())
}

func split(list string) []string {
	words := strings.Split(list, ",")
	for i := range words {
		words[i] = strings.TrimSpace(words[i])
	}
	return words
}

func notRecognized(arg string) string {
	return fmt.Sprintf("Option %q is not recognized. Please run 'nvidia-smi -h' for help.\n", arg)
}

func (o *smiFlags) badFormat() string {
	for _, word := range o.format {
		if !slices.Contains([]string{"csv", "noheader", "nounits"}, word) {
			return notRecognized("--format=" + strings.Join(o.format, ","))
		}
	}
	return ""
}

func badField(fields []string, known map[string]string) string {
	for _, name := range fields {
		if _, ok := known[name]; !ok {
			return fmt.Sprintf("Field %q is not a valid field to query.\n", name)
		}
	}
	return ""
}

func (o *smiFlags) badCombination() string {
	fields := o.gpuFields != nil || o.appFields != nil
	modes := []bool{o.list, o.query || o.xml, o.gpuFields != nil, o.appFields != nil}
	if modes = slices.DeleteFunc(modes, func(asked bool) bool { return !asked }); len(modes) > 1 || o.xml && !o.query || fields != slices.Contains(o.format, "csv") {
		return "Invalid combination of input arguments. Please run 'nvidia-smi -h' for help.\n"
	}
	return ""
}

// render fills in one of the templates.
func render(t *template.Template, v view) string {
	var b strings.Builder
	if err := t.Execute(&b, v); err != nil {
		panic(err) // the template is wrong
	}
	return b.String()
}

var functions = template.FuncMap{"amount": amount, "ending": ending, "memory": ofUnified, "enabled": enabled}

// ending is a name as the table shows it: of a long one the end.
func ending(name string) string {
	if len(name) <= 41 {
		return name
	}
	return "..." + name[len(name)-38:]
}

func parse(text string) *template.Template {
	return template.Must(template.New("").Funcs(functions).Parse(text))
}

// list is the output of `nvidia-smi -L`: a line for each device, and one below it for each of its MIG instances.
var list = parse(`{{range .Devices}}{{.Complaint}}{{if .Shown}}GPU {{.Index}}: {{.Name}} (UUID: {{.UUID}})
{{range $i, $m := .MIG}}{{printf "  MIG %-11s Device %2d: (UUID: %s)" .Profile $i .UUID}}
{{end}}{{end}}{{end}}`)

// table is what a driver of the 550 series prints without an argument.
var table = parse(`{{.Now.Format "Mon Jan _2 15:04:05 2006       "}}
+-----------------------------------------------------------------------------------------+
{{printf "| NVIDIA-SMI %-23sDriver Version: %-15sCUDA Version: %-9s|" .Version .Version .CUDA}}
|-----------------------------------------+------------------------+----------------------+
| GPU  Name                 Persistence-M | Bus-Id          Disp.A | Volatile Uncorr. ECC |
| Fan  Temp   Perf          Pwr:Usage/Cap |           Memory-Usage | GPU-Util  Compute M. |
|                                         |                        |               MIG M. |
|=========================================+========================+======================|
{{range .Listed -}}
{{printf "| %3d  %-30.30s  On |   %s Off |                    0 |" .Index .Name .BusID}}
{{printf "| N/A  %3dC    P0           %4dW /  700W |" ($.Celsius .) ($.Watt .)}}
{{- printf " %7dMiB / %6dMiB |    %3d%%      Default |" ($.Used .) .TotalMiB ($.Load .)}}
{{printf "|                                         |                        | %20s |" .MIGMode}}
+-----------------------------------------+------------------------+----------------------+
{{end}}{{printf "%89s" ""}}
+-----------------------------------------------------------------------------------------+
| Processes:                                                                              |
|  GPU   GI   CI        PID   Type   Process name                              GPU Memory |
|        ID   ID                                                               Usage      |
|=========================================================================================|
{{range $d := .Listed}}{{range $.On .}}{{$at := $.Instance .}}
{{- printf "|  %3d   %3s  %3s  %8d    %3s   %-41s %10s |" $d.Index (index $at 0) (index $at 1) .PID .Kind (ending .Name) (amount .UsedMiB "MiB" "N/A")}}
{{end}}{{end}}{{if not .Apps}}{{printf "|  %-86s |" "No running processes found"}}
{{end}}+-----------------------------------------------------------------------------------------+
`)

// xml is what `nvidia-smi -q -x` prints about devices and processes; the real
// program prints many more elements. Whether that escapes names is unknown: this one doesn't.
var xml = parse(`<?xml version="1.0" ?>
<!DOCTYPE nvidia_smi_log SYSTEM "nvsmi_device_v12.dtd">
<nvidia_smi_log>
	<timestamp>{{.Now.Format "Mon Jan _2 15:04:05 2006"}}</timestamp>
	<driver_version>{{html .Version}}</driver_version>
	<cuda_version>{{html .CUDA}}</cuda_version>
	<attached_gpus>{{len .Devices}}</attached_gpus>
{{- range .Listed}}{{$d := .}}
	<gpu id="{{.BusID}}">
		<product_name>{{html .Name}}</product_name>
		<display_active>{{enabled .Display}}</display_active>
		<mig_mode>
			<current_mig>{{.MIGMode}}</current_mig>
		</mig_mode>
		<mig_devices>
{{- range $i, $m := $.Instances .}}
			<mig_device>
				<index>{{$i}}</index>
				<gpu_instance_id>{{.GI}}</gpu_instance_id>
				<compute_instance_id>{{.CI}}</compute_instance_id>
				<fb_memory_usage>
					<total>{{.TotalMiB}} MiB</total>
					<used>{{$.InstanceUsed $d .}} MiB</used>
				</fb_memory_usage>
			</mig_device>
{{- end}}
		</mig_devices>
		<uuid>{{html .UUID}}</uuid>
		<minor_number>{{.MinorNumber}}</minor_number>
		<fb_memory_usage>
			<total>{{memory . .TotalMiB}}</total>
			<used>{{memory . ($.Used .)}}</used>
			<free>{{memory . ($.Free .)}}</free>
		</fb_memory_usage>
		<processes>
{{- range $.On .}}{{$at := $.Instance .}}
			<process_info>
				<gpu_instance_id>{{index $at 0}}</gpu_instance_id>
				<compute_instance_id>{{index $at 1}}</compute_instance_id>
				<pid>{{.PID}}</pid>
				<type>{{.Kind}}</type>
				<process_name>{{.Name}}</process_name>
				<used_memory>{{amount .UsedMiB " MiB" "N/A"}}</used_memory>
			</process_info>
{{- end}}
		</processes>
	</gpu>
{{- end}}
</nvidia_smi_log>
`)

// details is the part of `nvidia-smi -q` that says whether a screen is active, and what the processes are.
var details = parse(`
==============NVSMI LOG==============

Timestamp                                 : {{.Now.Format "Mon Jan _2 15:04:05 2006"}}
Driver Version                            : {{.Version}}
CUDA Version                              : {{.CUDA}}

Attached GPUs                             : {{len .Devices}}
{{range .Listed}}GPU {{.BusID}}
    Product Name                          : {{.Name}}
    Display Active                        : {{enabled .Display}}
    MIG Mode
        Current                           : {{.MIGMode}}
    GPU UUID                              : {{.UUID}}
    FB Memory Usage
        Total                             : {{memory . .TotalMiB}}
        Used                              : {{memory . ($.Used .)}}
    Processes{{if not ($.On .)}}                             : None{{end}}
{{range $.On .}}{{$at := $.Instance .}}        GPU instance ID                   : {{index $at 0}}
        Compute instance ID               : {{index $at 1}}
        Process ID                        : {{.PID}}
            Type                          : {{.Kind}}
            Name                          : {{.Name}}
            Used GPU Memory               : {{amount .UsedMiB " MiB" "N/A"}}
{{end}}
{{end}}`)
