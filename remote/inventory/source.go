package inventory

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"path/filepath"
	"strings"

	"github.com/seed-3119e985/genv/snapshot/strictyaml"
	"github.com/seed-3119e985/genv/snapshot/text"
)

// Open opens a file for reading. A file that does not exist is fs.ErrNotExist.
type Open func(path string) (io.ReadCloser, error)

type yamlFile struct {
	path string
	data []byte
}

func readFile(path, place string, open Open) ([]byte, error) {
	file, err := open(path)
	if err != nil {
		return nil, usagef("%s: %w; check the path and its permissions", place, bare(err))
	}
	defer file.Close()
	data, err := io.ReadAll(io.LimitReader(file, strictyaml.MaxSize+1))
	if err != nil {
		return nil, usagef("%s: %w; check that it is a file", place, bare(err))
	}
	if len(data) > strictyaml.MaxSize {
		return nil, usagef("%s: the file is larger than %d bytes; is it a host file?", place, strictyaml.MaxSize)
	}
	return data, nil
}

// bare is an error of the file system without its path: the place names it.
func bare(err error) error {
	var e *fs.PathError
	if errors.As(err, &e) {
		return e.Err
	}
	return err
}

// isFile says whether an item of -H is a file, by its name.
func (w word) isFile() bool {
	if _, isLabel := labelOf(w.text); isLabel || w.isNarrowing() {
		return false
	}
	return strings.Contains(w.text, "/") || isYAMLName(w.text)
}

func isYAMLName(path string) bool {
	ext := strings.ToLower(filepath.Ext(path))
	return ext == ".yaml" || ext == ".yml"
}

// isYAML distinguishes a YAML file from a plain list by its name, or by its first
// line that is neither empty nor a comment.
func isYAML(path string, data []byte) bool {
	if isYAMLName(path) {
		return true
	}
	for line := range bytes.Lines(data) {
		text := withoutComment(string(line))
		if text == "" {
			continue
		}
		key, _, ok := strings.Cut(text, ":")
		return text == "---" || text[0] == '{' || text[0] == '%' ||
			ok && (key == "defaults" || key == "hosts" || key == "groups")
	}
	return false
}

// plainLines are the hosts of a plain file, one per line.
func plainLines(path string, data []byte) []word {
	var words []word
	number := 0
	for line := range bytes.Lines(data) {
		number++
		if text := withoutComment(string(line)); text != "" {
			words = append(words, word{text, fmt.Sprintf("%s:%d", path, number)})
		}
	}
	return words
}

// withoutComment removes a comment, which begins with #. No host name contains #.
func withoutComment(line string) string {
	line, _, _ = strings.Cut(strings.TrimPrefix(line, "\uFEFF"), "#")
	return strings.TrimSpace(line)
}

// splitAll splits the values of a flag at their commas.
func splitAll(values []string, flag string) []word {
	var items []word
	for _, value := range values {
		for _, item := range text.SplitHosts(value) {
			items = append(items, word{item, flag})
		}
	}
	return items
}

// word names hosts; place is where it is written.
type word struct{ text, place string }
