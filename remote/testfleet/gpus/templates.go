package gpus

import (
	"strings"
	"text/template"
)

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
