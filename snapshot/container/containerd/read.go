package containerd

import (
	"errors"
	"fmt"
	"io"
)

// Container is what containerd knows about a container. Its texts may contain anything.
type Container struct {
	Image  string // with its tag; empty if it was made without one
	Labels map[string]string
}

var (
	// ErrNotFound means that there is no such container, or no such namespace.
	ErrNotFound = errors.New("containerd knows no such container")
	// ErrCorrupt means that the file is not a database of containerd, or was damaged.
	ErrCorrupt = errors.New("not a database of containerd")
	// ErrBusy means that it changes all the time; the next look may succeed.
	ErrBusy = errors.New("containerd writes its database")
)

// maxTries is how often a container is looked for if the database changes meanwhile.
const maxTries = 3

// maxLabels bounds the labels that are read.
const maxLabels = 1000

// Read finds a container in a namespace of containerd. The error wraps ErrNotFound,
// ErrCorrupt or ErrBusy, or is that of the reader.
func Read(file io.ReaderAt, namespace, id string) (Container, error) {
	for range maxTries {
		before, err := newestMeta(file)
		if err != nil {
			return Container{}, err
		}
		found, err := read(&tree{file: file, meta: before}, namespace, id)
		after, metaErr := newestMeta(file)
		if metaErr == nil && after.commit == before.commit {
			return found, err
		}
	}
	return Container{}, ErrBusy
}

func read(t *tree, namespace, id string) (found Container, err error) {
	b := bucket{tree: t, root: t.meta.root}
	for _, name := range []string{"v1", namespace, "containers", id} {
		if b, err = b.sub(name); err != nil {
			return Container{}, err
		}
	}
	image, err := b.find("image")
	if err != nil && !errors.Is(err, ErrNotFound) {
		return Container{}, err
	}
	found.Image = string(image.value)
	labels, err := b.sub("labels")
	if errors.Is(err, ErrNotFound) {
		return found, nil
	}
	if err != nil {
		return Container{}, err
	}
	found.Labels = map[string]string{}
	return found, labels.each(func(i item) error {
		if len(found.Labels) == maxLabels {
			return fmt.Errorf("%w: more than %d labels", ErrCorrupt, maxLabels)
		}
		found.Labels[string(i.key)] = string(i.value)
		return nil
	})
}
