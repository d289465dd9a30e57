// Package containerd reads what containerd keeps about containers in its metadata database:
// the image and the labels, which are not in a container's bundle.
//
//	found, err := containerd.Read(file, "default", id)
//
// It only reads, and asks no lock, since containerd holds that for as long as it runs. The
// file is a B+ tree of bbolt (https://pkg.go.dev/go.etcd.io/bbolt), in which a commit writes
// new pages and then one of two meta pages; a page of the last commit is written again only
// after another one. So what was read is whole if the last commit is still the same afterwards.
// Whether the file can be trusted is for the caller to check.
package containerd

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/fnv"
	"io"
)

// The layout of a bbolt file; numbers have the byte order of the machine that wrote it, which
// is this one.
const (
	pageHeader   = 16 // id uint64, flags uint16, count uint16, overflow uint32
	elementSize  = 16 // of a branch: pos, ksize uint32, page uint64; of a leaf: flags, pos, ksize, vsize uint32
	bucketHeader = 16 // root uint64, sequence uint64
	metaSize     = 64 // with its checksum
	magic        = 0xED0CDAED
	version      = 2

	branchPage = 0x01
	leafPage   = 0x02
	isBucket   = 0x01 // of a leaf's element
)

const (
	maxPage  = 1 << 20 // in bytes, with what overflows
	maxDepth = 32
	maxPages = 1000 // that are read for one container
)

var order = binary.NativeEndian

// meta is what a commit says about the tree.
type meta struct {
	pageSize     int64
	root, commit uint64
}

// newestMeta reads the meta pages, and returns the valid one of the later commit.
func newestMeta(file io.ReaderAt) (newest meta, err error) {
	for _, at := range []int64{0, 4 << 10, 8 << 10, 16 << 10, 64 << 10} { // the second one is the second page
		data := make([]byte, pageHeader+metaSize)
		if _, err := file.ReadAt(data, at); err != nil {
			if errors.Is(err, io.EOF) {
				break
			}
			return meta{}, err
		}
		m, ok := parseMeta(data[pageHeader:])
		if ok && (at == 0 || at == m.pageSize) && m.commit >= newest.commit {
			newest = m
		}
	}
	if newest.pageSize == 0 {
		return meta{}, fmt.Errorf("%w: it has no valid meta page", ErrCorrupt)
	}
	return newest, nil
}

func parseMeta(data []byte) (meta, bool) {
	sum := fnv.New64a()
	_, _ = sum.Write(data[:metaSize-8])
	m := meta{int64(order.Uint32(data[8:])), order.Uint64(data[16:]), order.Uint64(data[48:])}
	valid := order.Uint32(data) == magic && order.Uint32(data[4:]) == version && order.Uint64(data[metaSize-8:]) == sum.Sum64()
	return m, valid && m.pageSize >= 1<<10 && m.pageSize <= 64<<10
}

// tree is the file as of a commit.
type tree struct {
	file  io.ReaderAt
	meta  meta
	pages int // that were read
}

// page reads a page with what overflows.
func (t *tree) page(id uint64) ([]byte, error) {
	if t.pages++; t.pages > maxPages || id > 1<<40 {
		return nil, fmt.Errorf("%w: it refers to too many pages, or to one outside", ErrCorrupt)
	}
	header, at := make([]byte, pageHeader), int64(id)*t.meta.pageSize
	if _, err := t.file.ReadAt(header, at); err != nil {
		return nil, unexpected(err)
	}
	size := (int64(order.Uint32(header[12:])) + 1) * t.meta.pageSize
	if size > maxPage || order.Uint64(header) != id {
		return nil, fmt.Errorf("%w: page %d", ErrCorrupt, id)
	}
	data := make([]byte, size)
	_, err := t.file.ReadAt(data, at)
	return data, unexpected(err)
}

func unexpected(err error) error {
	if errors.Is(err, io.EOF) {
		return fmt.Errorf("%w: it ends early", ErrCorrupt)
	}
	return err
}

// bucket is a tree in the tree. A small one is within the page of its parent.
type bucket struct {
	tree   *tree
	root   uint64
	inline []byte
}

// item is a key with its value. A bucket's value begins with its header.
type item struct {
	key, value []byte
	bucket     bool
}

// sub is a bucket in a bucket.
func (b bucket) sub(name string) (bucket, error) {
	found, err := b.find(name)
	switch {
	case err != nil:
		return bucket{}, err
	case !found.bucket || len(found.value) < bucketHeader:
		return bucket{}, fmt.Errorf("%w: %q is no bucket", ErrCorrupt, name)
	}
	return bucket{b.tree, order.Uint64(found.value), found.value[bucketHeader:]}, nil
}

// find finds an item by its key.
func (b bucket) find(key string) (item, error) {
	data, err := b.top()
	for depth := 0; err == nil && depth < maxDepth; depth++ {
		items, next, parseErr := parsePage(data)
		if parseErr != nil {
			return item{}, parseErr
		}
		at := -1
		for i := range items {
			if order := bytes.Compare(items[i].key, []byte(key)); order == 0 || order < 0 && next != nil {
				at = i
			}
		}
		switch {
		case at < 0:
			return item{}, ErrNotFound
		case next == nil:
			return items[at], nil
		}
		data, err = b.tree.page(next[at])
	}
	return item{}, errOr(err)
}

// each calls a function for each item, until that fails.
func (b bucket) each(do func(item) error) error {
	data, err := b.top()
	if err != nil {
		return err
	}
	return b.eachIn(data, maxDepth, do)
}

func (b bucket) eachIn(data []byte, depth int, do func(item) error) error {
	items, next, err := parsePage(data)
	if err != nil || depth == 0 {
		return errOr(err)
	}
	for i := range items {
		if next == nil {
			err = do(items[i])
		} else if data, err = b.tree.page(next[i]); err == nil {
			err = b.eachIn(data, depth-1, do)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// errOr is an error, or that a tree is too deep.
func errOr(err error) error {
	if err == nil {
		err = fmt.Errorf("%w: it is too deep", ErrCorrupt)
	}
	return err
}

// top is the first page of a bucket.
func (b bucket) top() ([]byte, error) {
	if b.root == 0 {
		return b.inline, nil
	}
	return b.tree.page(b.root)
}

// parsePage returns the items of a page in the order of their keys. Those of a branch have no
// values; next are the pages with the items from each one on.
func parsePage(data []byte) (items []item, next []uint64, err error) {
	if len(data) < pageHeader {
		return nil, nil, fmt.Errorf("%w: a page is too short", ErrCorrupt)
	}
	flags, count := order.Uint16(data[8:]), int(order.Uint16(data[10:]))
	if flags != branchPage && flags != leafPage || pageHeader+count*elementSize > len(data) {
		return nil, nil, fmt.Errorf("%w: a page of another kind", ErrCorrupt)
	}
	for i := range count {
		element := data[pageHeader+i*elementSize:]
		kind, pos, keySize, valueSize := order.Uint32(element), order.Uint32(element[4:]), order.Uint32(element[8:]), order.Uint32(element[12:])
		if flags == branchPage {
			next = append(next, order.Uint64(element[8:]))
			kind, pos, keySize, valueSize = 0, order.Uint32(element), order.Uint32(element[4:]), 0
		}
		if uint64(pos)+uint64(keySize)+uint64(valueSize) > uint64(len(element)) {
			return nil, nil, fmt.Errorf("%w: an item is outside of its page", ErrCorrupt)
		}
		key := element[pos : pos+keySize]
		items = append(items, item{key, element[pos+keySize : pos+keySize+valueSize], kind&isBucket != 0})
	}
	return items, next, nil
}

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
