package main

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
)

// comments are what the source says about the types and their fields, by "Type" and "Type.Field".
type comments map[string]string

// readComments reads the Go files of a directory, tests left out.
func readComments(dir string) (comments, error) {
	files, err := filepath.Glob(filepath.Join(dir, "*.go"))
	if err != nil {
		return nil, err
	}
	said := comments{}
	for _, name := range files {
		if strings.HasSuffix(name, "_test.go") {
			continue
		}
		file, err := parser.ParseFile(token.NewFileSet(), name, nil, parser.ParseComments|parser.SkipObjectResolution)
		if err != nil {
			return nil, fmt.Errorf("read the comments of the event types: %w", err)
		}
		for _, decl := range file.Decls {
			if d, ok := decl.(*ast.GenDecl); ok && d.Tok == token.TYPE {
				said.add(d)
			}
		}
	}
	return said, nil
}

func (said comments) add(d *ast.GenDecl) {
	for _, spec := range d.Specs {
		t, ok := spec.(*ast.TypeSpec)
		if !ok {
			continue
		}
		body, ok := t.Type.(*ast.StructType)
		if !ok {
			continue
		}
		said[t.Name.Name] = words(d.Doc)
		for _, f := range body.Fields.List {
			for _, name := range f.Names {
				said[t.Name.Name+"."+name.Name] = words(f.Doc, f.Comment)
			}
		}
	}
}

// words is the text of comments in one line.
func words(groups ...*ast.CommentGroup) string {
	var all []string
	for _, g := range groups {
		all = append(all, strings.Fields(g.Text())...)
	}
	return strings.Join(all, " ")
}

var word = regexp.MustCompile(`(Head\(\)\.|Header\.)?\b[A-Z][A-Za-z0-9]*\b`)

// translate replaces the Go names of fields by their JSON names. A text may begin with one of these words as a plain word.
func translate(text string, jsonNames map[string]string) string {
	at := word.FindAllStringIndex(text, -1)
	for _, w := range slices.Backward(at) {
		name := text[w[0]:w[1]]
		name = name[strings.LastIndexByte(name, '.')+1:]
		if to, ok := jsonNames[name]; ok {
			text = text[:w[0]] + to + text[w[1]:]
		}
	}
	return text
}
