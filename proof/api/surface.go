package api

import (
	"bytes"
	"fmt"
	"go/ast"
	"go/parser"
	"go/printer"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// closed are folders without packages that programs import.
var closed = []string{"internal", "proof", "testdata", "examples", "cmd", "bin", "docs", "deploy", "scripts", "packaging"}

// surface returns a line for each exported name below a directory, sorted, and how many names each
// package has, fields and methods of interfaces not counted.
func surface(root string) (lines []string, names map[string]int, err error) {
	names = map[string]int{}
	err = filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err != nil || !d.IsDir() {
			return err
		}
		if base := d.Name(); path != root && (strings.HasPrefix(base, ".") || slices.Contains(closed, base)) {
			return filepath.SkipDir
		}
		name, err := filepath.Rel(root, path)
		if err != nil {
			return err
		}
		p := &lister{name: filepath.ToSlash(name), files: token.NewFileSet()}
		if err := p.readFolder(path); err != nil {
			return err
		}
		if p.count > 0 {
			names[p.name] = p.count
			lines = append(lines, p.lines...)
		}
		return nil
	})
	slices.Sort(lines)
	return lines, names, err
}

// lister lists a package.
type lister struct {
	name  string
	files *token.FileSet
	lines []string
	count int
}

func (p *lister) readFolder(path string) error {
	entries, err := os.ReadDir(path)
	if err != nil {
		return err
	}
	for _, e := range entries {
		if name := e.Name(); strings.HasSuffix(name, ".go") && !strings.HasSuffix(name, "_test.go") {
			file, err := parser.ParseFile(p.files, filepath.Join(path, name), nil, parser.SkipObjectResolution)
			if err != nil {
				return err
			}
			if file.Name.Name != "main" {
				p.readFile(file)
			}
		}
	}
	return nil
}

func (p *lister) readFile(file *ast.File) {
	for _, d := range file.Decls {
		switch d := d.(type) {
		case *ast.FuncDecl:
			if d.Name.IsExported() && (d.Recv == nil || isExported(d.Recv.List[0].Type)) {
				d.Body, d.Doc = nil, nil
				p.add("%s", p.text(d))
			}
		case *ast.GenDecl:
			for _, s := range d.Specs {
				switch s := s.(type) {
				case *ast.TypeSpec:
					if s.Name.IsExported() {
						p.addType(s)
					}
				case *ast.ValueSpec:
					for _, name := range s.Names {
						if name.IsExported() {
							p.add("%s %s %s", d.Tok, name.Name, p.text(s.Type))
						}
					}
				}
			}
		}
	}
}

// addType lists a type, and each of its fields or methods on a line of its own: another field
// breaks no program, another method of an interface breaks those that implement it.
func (p *lister) addType(s *ast.TypeSpec) {
	parameters := p.text(s.TypeParams)
	switch t := s.Type.(type) {
	case *ast.StructType:
		p.add("type %s%s struct", s.Name.Name, parameters)
		p.members(s.Name.Name, t.Fields)
	case *ast.InterfaceType:
		p.add("type %s%s interface", s.Name.Name, parameters)
		p.members(s.Name.Name, t.Methods)
	default:
		assign := ""
		if s.Assign.IsValid() {
			assign = "= "
		}
		p.add("type %s%s %s%s", s.Name.Name, parameters, assign, p.text(s.Type))
	}
}

func (p *lister) members(of string, list *ast.FieldList) {
	for _, f := range list.List {
		f.Doc, f.Comment = nil, nil
		if len(f.Names) == 0 {
			p.line("%s: embeds %s", of, p.text(f.Type))
		}
		for _, name := range f.Names {
			if name.IsExported() {
				p.line("%s: %s %s", of, name.Name, p.text(f.Type))
			}
		}
	}
}

func (p *lister) add(format string, args ...any) {
	p.count++
	p.line(format, args...)
}

func (p *lister) line(format string, args ...any) {
	p.lines = append(p.lines, p.name+": "+strings.Join(strings.Fields(fmt.Sprintf(format, args...)), " "))
}

// text returns a node's source, "" for none.
func (p *lister) text(node any) string {
	switch n := node.(type) {
	case ast.Expr:
	case *ast.FieldList:
		if n == nil {
			return ""
		}
		var list []string
		for _, f := range n.List {
			for _, name := range f.Names {
				list = append(list, name.Name+" "+p.text(f.Type))
			}
		}
		return "[" + strings.Join(list, ", ") + "]"
	case nil:
		return ""
	}
	var b bytes.Buffer
	if err := printer.Fprint(&b, p.files, node); err != nil {
		return err.Error()
	}
	return b.String()
}

// isExported reports whether a receiver's type is exported.
func isExported(e ast.Expr) bool {
	switch e := e.(type) {
	case *ast.StarExpr:
		return isExported(e.X)
	case *ast.IndexExpr:
		return isExported(e.X)
	case *ast.IndexListExpr:
		return isExported(e.X)
	case *ast.Ident:
		return e.IsExported()
	}
	return false
}

// breaks returns the lines of before that are not in now, and what an interface has in addition.
func breaks(before, now []string) (gone []string) {
	for _, line := range before {
		if _, is := slices.BinarySearch(now, line); !is {
			gone = append(gone, line)
		}
	}
	interfaces := map[string]bool{}
	for _, line := range before {
		if owner, is := strings.CutSuffix(line, " interface"); is {
			name, _, _ := strings.Cut(strings.Replace(owner, ": type ", ": ", 1), "[")
			interfaces[name] = true
		}
	}
	for _, line := range now {
		if _, known := slices.BinarySearch(before, line); known {
			continue
		}
		if parts := strings.SplitN(line, ": ", 3); len(parts) == 3 && interfaces[parts[0]+": "+parts[1]] {
			gone = append(gone, "new in an interface: "+line)
		}
	}
	return gone
}
