package readonly

import "bytes"

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
