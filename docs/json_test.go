// Package docs_test keeps json.md in step with the types that genv encodes.
package docs_test

import (
	"encoding/json"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path"
	"path/filepath"
	"reflect"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/seed-3119e985/genv/snapshot/proc/proctest"
)

// part is a list of keys or values in json.md, between two comments of which the first names
// the type, and the example after it, if there is one.
var part = regexp.MustCompile("(?s)<!--([\\w/]+)\\.(\\w+)-->\n(.*?)<!---->\n(?:\n```json\n(.*?)```)?")

// heading is one of a section that begins with a list.
var heading = regexp.MustCompile(`(?m)^#+ (.*)\n+(?:[^#<\n].*\n+)*<!--([\w/]+\.\w+)-->`)

// TestJSON checks that the lists in json.md are those of the types, with the comments of their
// fields, and that each example is a document of its type. UPDATE_GOLDEN=1 writes the lists.
func TestJSON(t *testing.T) {
	data := proctest.ReadFile(t, "json.md")
	s := &source{t: t, types: map[string]*declared{}, constants: map[string]string{}, sections: map[string]string{}}
	for _, m := range heading.FindAllStringSubmatch(string(data), -1) {
		s.sections[m[2]] = m[1]
	}
	want := part.ReplaceAllStringFunc(string(data), func(text string) string {
		m := part.FindStringSubmatch(text)
		d, k := s.find(m[1], m[2]), &keys{source: s, objects: map[string]map[string]bool{}}
		require.NotNil(t, d, "json.md names %s.%s, which isn't there", m[1], m[2])
		if d.isStruct() {
			k.object("", d, true)
		}
		for _, v := range d.values {
			k.add("- `"+v.text+"`", v.comment)
		}
		if m[4] != "" {
			var example any
			require.NoError(t, json.Unmarshal([]byte(m[4]), &example), m[2])
			k.check(m[2], "", example)
		}
		return strings.Replace(text, "-->\n"+m[3], "-->\n"+strings.Join(k.wrapped(), ""), 1)
	})
	if os.Getenv("UPDATE_GOLDEN") != "" {
		require.NoError(t, os.WriteFile("json.md", []byte(want), 0o600))
		return
	}
	require.Equal(t, want, string(data), "UPDATE_GOLDEN=1 go test ./docs writes it")
}

// declared is a type of this module, and where it is.
type declared struct {
	name, dir string
	file      *ast.File
	expr      ast.Expr
	values    []value // its constants
}

type value struct{ text, comment string }

func (d *declared) isStruct() bool {
	if d == nil || d.isText() {
		return false
	}
	_, is := d.expr.(*ast.StructType)
	return is
}

// isText says whether a type is encoded as a text, by a method.
func (d *declared) isText() bool { return d.name == "Date" || d.name == "Memory" || d.name == "Mode" }

type source struct {
	t         *testing.T
	types     map[string]*declared
	constants map[string]string
	sections  map[string]string // of json.md, by type
}

// find is the declaration of a type; nil for a built-in one.
func (s *source) find(dir, name string) *declared {
	if s.types[dir] == nil {
		s.types[dir] = &declared{}
		paths := proctest.Try(filepath.Glob(filepath.Join("..", dir, "*.go"))).OK(s.t)
		for _, p := range paths {
			if !strings.HasSuffix(p, "_test.go") {
				s.read(dir, p)
			}
		}
	}
	return s.types[dir+"."+name]
}

func (s *source) read(dir, file string) {
	f := proctest.Try(parser.ParseFile(token.NewFileSet(), file, nil, parser.ParseComments)).OK(s.t)
	of := func(name string) *declared {
		if s.types[dir+"."+name] == nil {
			s.types[dir+"."+name] = &declared{name: name, dir: dir}
		}
		return s.types[dir+"."+name]
	}
	ast.Inspect(f, func(n ast.Node) bool {
		switch spec := n.(type) {
		case *ast.TypeSpec:
			d := of(spec.Name.Name)
			d.file, d.expr = f, spec.Type
		case *ast.ValueSpec:
			text := s.text(f, spec.Values)
			if name, typed := spec.Type.(*ast.Ident); typed && text != "" {
				d := of(name.Name)
				d.values = append(d.values, value{text, comment(spec.Names, spec.Doc, spec.Comment)})
			}
			s.constants[dir+"."+spec.Names[0].Name] = text
		}
		return true
	})
}

// text is that of a constant, which may be that of another package; empty for anything else.
func (s *source) text(file *ast.File, values []ast.Expr) (text string) {
	if len(values) != 1 {
		return ""
	}
	switch e := values[0].(type) {
	case *ast.BasicLit:
		if e.Kind == token.STRING {
			text, _ = strconv.Unquote(e.Value)
		}
	case *ast.SelectorExpr:
		if dir := imported(file, e); dir != "" {
			s.find(dir, "")
			text = s.constants[dir+"."+e.Sel.Name]
		}
	}
	return text
}

// imported is the folder of the package of a name; empty if it isn't of this module.
func imported(file *ast.File, e *ast.SelectorExpr) string {
	for _, i := range file.Imports {
		p, _ := strconv.Unquote(i.Path.Value)
		name := path.Base(p)
		if i.Name != nil {
			name = i.Name.Name
		}
		x, ok := e.X.(*ast.Ident)
		if dir, ours := strings.CutPrefix(p, "github.com/seed-3119e985/genv/"); ours && ok && name == x.Name {
			return dir
		}
	}
	return ""
}

// named is the declaration of a type that another one mentions; nil if it isn't of this module.
func (s *source) named(in *declared, expr ast.Expr) *declared {
	switch e := expr.(type) {
	case *ast.StarExpr:
		return s.named(in, e.X)
	case *ast.Ident:
		return s.find(in.dir, e.Name)
	case *ast.SelectorExpr:
		if dir := imported(in.file, e); dir != "" {
			if wire := s.find(dir, strings.ToLower(e.Sel.Name)+"Wire"); wire != nil { // as it is encoded
				return wire
			}
			return s.find(dir, e.Sel.Name)
		}
	}
	return nil
}

// link is one to the section about a type; empty if there is none.
func (s *source) link(d *declared) string {
	if d == nil || s.sections[d.dir+"."+d.name] == "" {
		return ""
	}
	title := s.sections[d.dir+"."+d.name]
	anchor := regexp.MustCompile(`[^\w-]`).ReplaceAllString(strings.ReplaceAll(strings.ToLower(title), " ", "-"), "")
	return "[" + title + "](#" + anchor + ")"
}

// keys are those of a document.
type keys struct {
	*source
	lines   []string
	objects map[string]map[string]bool // by path, then by key: whether the key is always there
}

// object adds the keys of a struct at a path. A type with a section is listed there alone.
func (k *keys) object(at string, d *declared, listed bool) {
	if other, is := d.expr.(*ast.Ident); is { // declared as another type
		d = k.find(d.dir, other.Name)
	}
	for _, f := range d.expr.(*ast.StructType).Fields.List {
		tag := ""
		if f.Tag != nil {
			quoted, _ := strconv.Unquote(f.Tag.Value)
			tag = reflect.StructTag(quoted).Get("json")
		}
		switch key, options, _ := strings.Cut(tag, ","); {
		case key == "" && len(f.Names) == 0: // embedded
			e := k.named(d, f.Type)
			link := k.link(e)
			switch {
			case link != "" && listed && at == "":
				k.add("- the keys of "+link, "")
			case link != "" && listed:
				k.add("- "+shown(at), "the keys of "+link)
			}
			k.object(at, e, listed && link == "")
		case key != "" && key != "-":
			k.field(at, key, options != "", d, f, listed)
		}
	}
}

func (k *keys) field(at, key string, optional bool, d *declared, f *ast.Field, listed bool) {
	if k.objects[at] == nil {
		k.objects[at] = map[string]bool{}
	}
	k.objects[at][key] = !optional
	at += "." + key
	expr, shape, inner, null := f.Type, "", (*declared)(nil), false
	for shape == "" {
		switch e := expr.(type) {
		case *ast.StarExpr:
			expr, null = e.X, !optional
		case *ast.ArrayType:
			expr, at = e.Elt, at+"[]"
		case *ast.MapType:
			expr, at = e.Value, at+".*"
		default:
			inner = k.named(d, expr)
			if inner == nil || inner.isText() || inner.isStruct() || len(inner.values) > 1 || k.link(inner) != "" {
				shape = k.shape(expr, inner)
			} else {
				d, expr = inner, inner.expr
			}
		}
	}
	text := comment(f.Names, f.Doc, f.Comment)
	if listed && key != "schema" && (text != "" || !inner.isStruct() || k.link(inner) != "") {
		name := shown(at)
		if optional {
			name = strings.TrimSuffix(name, "`") + "?`"
		}
		if null {
			shape += " or null"
		}
		k.add(strings.TrimRight("- "+name+" "+shape, " "), text)
	}
	if inner.isStruct() {
		k.object(at, inner, listed && k.link(inner) == "")
	}
}

// shape says what a value is; it is " " for a text, and for an object, of which the keys follow.
func (k *keys) shape(expr ast.Expr, d *declared) string {
	basic := map[string]string{"string": " ", "bool": "boolean", "any": "any"}
	switch e := expr.(type) {
	case *ast.Ident:
		if d == nil {
			if shape := basic[e.Name]; shape != "" {
				return shape
			}
			return "number"
		}
	case *ast.SelectorExpr:
		switch {
		case d == nil && e.Sel.Name == "Time":
			return "time"
		case d == nil: // a duration
			return "number"
		}
	}
	switch {
	case k.link(d) != "":
		return k.link(d)
	case d.isText() || d.isStruct():
		return " "
	}
	var values []string
	for _, v := range d.values {
		values = append(values, "`"+v.text+"`")
	}
	if len(values) == 0 {
		return "number"
	}
	return "(" + strings.Join(values, ", ") + ")"
}

// add adds a line. What has no comment goes into the line of what is before, if that is in the
// same object and has none either.
func (k *keys) add(key, comment string) {
	object := func(line string) string {
		key, _, _ := strings.Cut(line, " ")
		return key[:strings.LastIndexByte(key, '.')+1]
	}
	last := len(k.lines) - 1
	rest := strings.TrimPrefix(key, "- ")
	if comment == "" && last >= 0 && !strings.Contains(k.lines[last], ": ") && strings.HasPrefix(rest, "`") {
		if before := strings.TrimPrefix(k.lines[last], "- "); object(before) == object(rest) {
			if object(rest) != "" {
				rest = strings.Replace(rest, object(rest), "`.", 1)
			}
			k.lines[last] += ", " + rest
			return
		}
	}
	if comment != "" {
		key += ": " + comment
	}
	k.lines = append(k.lines, key)
}

// wrapped are the lines, none longer than 120 characters.
func (k *keys) wrapped() []string {
	var list []string
	for _, text := range k.lines {
		line := ""
		for _, word := range strings.Fields(text) {
			if len([]rune(line+" "+word)) > 120 {
				list = append(list, line+"\n")
				line = " "
			}
			line = strings.TrimPrefix(line+" "+word, " -")
			if word == "-" {
				line = "-"
			}
		}
		list = append(list, line+"\n")
	}
	return list
}

func shown(at string) string { return "`" + strings.TrimPrefix(at, ".") + "`" }

// comment is what comments say of a field or a constant, without its name at the beginning.
func comment(names []*ast.Ident, groups ...*ast.CommentGroup) string {
	text := ""
	for _, g := range groups {
		text += " " + g.Text()
	}
	text = strings.TrimSuffix(strings.Join(strings.Fields(text), " "), ".")
	for _, name := range names {
		text = regexp.MustCompile(`^`+name.Name+`(:| is for| is| are| says that| says)? `).ReplaceAllString(text, "")
	}
	return text
}

// check fails for keys that a document doesn't have, and for missing ones.
func (k *keys) check(name, at string, example any) {
	switch v := example.(type) {
	case []any:
		for _, each := range v {
			k.check(name, at+"[]", each)
		}
	case map[string]any:
		object, ok := k.objects[at]
		if !ok { // a mapping
			for _, each := range v {
				k.check(name, at+".*", each)
			}
			return
		}
		for key, each := range v {
			require.Contains(k.t, object, key, "%s %s", name, at)
			k.check(name, at+"."+key, each)
		}
		for key, always := range object {
			_, has := v[key]
			require.True(k.t, has || !always, "%s %s.%s is missing", name, at, key)
		}
	}
}
