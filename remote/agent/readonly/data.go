package readonly

import (
	"bytes"
	"strconv"
	"strings"

	"github.com/seed-3119e985/genv/remote"
	"github.com/seed-3119e985/genv/snapshot/nvidiasmi"
)

// dataMark is the line before the data of a program that prints no JSON.
const dataMark = "genv-data"

// marked is the command that prints dataMark, on a line of its own, and then runs a
// program.
func marked(args ...string) []string {
	return append([]string{"sh", "-c", `echo; echo "$0"; exec "$@"`, dataMark}, args...)
}

// dataIn is the output after dataMark; all of it if there is no mark.
func dataIn(output []byte) []byte {
	if _, data, found := bytes.Cut(output, []byte("\n"+dataMark+"\n")); found {
		return data
	}
	return output
}

// markedSMI is marked for nvidia-smi, of which the exit code comes after its output.
func markedSMI(args ...string) []string {
	return append([]string{"sh", "-c", `echo; echo "$0"; LC_ALL=C GENV_BYPASS=1 nvidia-smi "$@"; s=$?; echo; echo "$0 $s"; exit $s`, dataMark}, args...)
}

// smiAnswer is what nvidia-smi printed; ok is false unless it came to its end.
func smiAnswer(out remote.Output) (answer nvidiasmi.RunResult, ok bool) {
	data := dataIn(out.Stdout)
	end := bytes.LastIndex(data, []byte("\n"+dataMark+" "))
	if end < 0 {
		return answer, false
	}
	code, err := strconv.Atoi(strings.TrimSpace(string(data[end+len(dataMark)+2:])))
	return nvidiasmi.RunResult{Stdout: data[:end], Stderr: out.Stderr, ExitCode: code}, err == nil && code != notFound
}

// notFound is the exit code of a shell that doesn't find the program.
const notFound = 127
