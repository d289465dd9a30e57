package gpus

import (
	"fmt"
	"io"
	"strings"
	"time"
)

const (
	tableEdge  = "+-----------------------------------------------------------------------------------------+"
	tableGPUs  = "|-----------------------------------------+------------------------+----------------------+"
	tableHead  = "|=========================================+========================+======================|"
	tableRow   = "+-----------------------------------------+------------------------+----------------------+"
	tableApps  = "|=========================================================================================|"
	tableBlank = "                                                                                         "
)

// showTable prints what a driver of the 550 series prints without an argument.
func showTable(w io.Writer, h Host, now time.Time) error {
	var b strings.Builder
	fmt.Fprintln(&b, now.Format("Mon Jan _2 15:04:05 2006")+"       ")
	fmt.Fprintln(&b, tableEdge)
	fmt.Fprintf(&b, "| NVIDIA-SMI %-23sDriver Version: %-15sCUDA Version: %-9s|\n", h.Driver, h.Driver, h.CUDA)
	fmt.Fprintln(&b, tableGPUs)
	fmt.Fprintln(&b, "| GPU  Name                 Persistence-M | Bus-Id          Disp.A | Volatile Uncorr. ECC |")
	fmt.Fprintln(&b, "| Fan  Temp   Perf          Pwr:Usage/Cap |           Memory-Usage | GPU-Util  Compute M. |")
	fmt.Fprintln(&b, "|                                         |                        |               MIG M. |")
	fmt.Fprintln(&b, tableHead)
	for _, d := range h.Devices {
		tableDevice(&b, h, d)
	}
	fmt.Fprintln(&b, tableBlank)
	tableProcesses(&b, h)
	_, err := io.WriteString(w, b.String())
	return err
}

func tableDevice(b *strings.Builder, h Host, d Device) {
	load := 0
	if h.busy(d) {
		load = 97
	}
	fmt.Fprintf(b, "| %3d  %-30.30s  On |   %s Off |                    0 |\n", d.Index, d.Name, busID(d.Index))
	fmt.Fprintf(b, "| N/A  %3dC    P0           %4dW / %4dW | %7dMiB / %6dMiB |    %3d%%      Default |\n",
		31+load/3, 70+5*load, 700, h.used(d), d.TotalMiB, load)
	fmt.Fprintf(b, "|                                         |                        | %20s |\n", migMode(d))
	fmt.Fprintln(b, tableRow)
}

func tableProcesses(b *strings.Builder, h Host) {
	fmt.Fprintln(b, tableEdge)
	fmt.Fprintln(b, "| Processes:                                                                              |")
	fmt.Fprintln(b, "|  GPU   GI   CI        PID   Type   Process name                              GPU Memory |")
	fmt.Fprintln(b, "|        ID   ID                                                               Usage      |")
	fmt.Fprintln(b, tableApps)
	for _, a := range h.Apps {
		used := "N/A"
		if a.UsedMiB != nil {
			used = fmt.Sprintf("%dMiB", *a.UsedMiB)
		}
		if d, ok := h.device(a); ok {
			fmt.Fprintf(b, "|  %3d   N/A  N/A  %8d      C   %-41s %10s |\n", d.Index, a.PID, ending(a.Name, 41), used)
		}
	}
	if len(h.Apps) == 0 {
		fmt.Fprintf(b, "|  %-86s |\n", "No running processes found")
	}
	fmt.Fprintln(b, tableEdge)
}

// ending is a name as the table shows it: of a long one the end.
func ending(name string, width int) string {
	if len(name) <= width {
		return name
	}
	return "..." + name[len(name)-width+3:]
}
